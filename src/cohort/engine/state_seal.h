// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/core/error.h"
#include "cohort/engine/flat_state.h"
#include "cohort/tensor.h"

namespace cohort {

// The memory of this rank's state has changed by itself. Its peers have theirs: this
// rank has none any more, and takes it from them in another world.
class DamagedMemory : public CommError {
 public:
  using CommError::CommError;
};

// Hashes of a state between two updates, so that a bit that flips meanwhile is noticed
// by the rank that holds it. A part is a bucket, with all that its next update reads
// and what ranks compute with until then; the last one is the chain's buffers. To close
// a part costs a pass over its memory, and so does a look at it.
//
// Borrows the state and the chain. Thread safety: none.
class StateSeal {
 public:
  // `shard`: the level to which the state is cut.
  StateSeal(const FlatState& state, const Chain& chain, int shard);

  int buffers() const { return static_cast<int>(parts_.size()) - 1; }

  // The part stays as it is from here on, or is about to change. At first all are open.
  void close(int part);
  void close_all();
  void open(int part) { parts_[part] = {}; }

  // What closed memory is not what it was, as words for a line; empty: all is.
  std::string broken() const;
  std::string broken(int part) const;

 private:
  struct Part {
    bool closed = false;
    uint64_t hash = 0;
  };
  std::vector<Tensor> memory(int part) const;

  const FlatState& state_;
  const Chain& chain_;
  int shard_;
  std::vector<Part> parts_;
};

}  // namespace cohort
