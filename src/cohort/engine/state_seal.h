// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/tensor.h"

namespace cohort {

// The memory of this rank's state has changed by itself. Its peers have theirs: this
// rank has none any more, and takes it from them in another world.
class DamagedMemory : public CommError {
 public:
  using CommError::CommError;
};

// Hashes of memory that nobody may change for a while: a bit that flips meanwhile is
// noticed by the rank that holds it. Costs a pass over the memory to close a part, and
// one to look at it. Thread safety: none.
class StateSeal {
 public:
  // Part `part` is `memory` and stays as it is from here on.
  void close(int part, std::vector<Tensor> memory);
  // It is about to change. A part that was never closed is open.
  void open(int part);

  // The first closed part that is not what it was; none: all are.
  std::optional<int> broken() const;
  bool is_broken(int part) const;

 private:
  struct Part {
    bool closed = false;
    std::vector<Tensor> memory;
    uint64_t hash = 0;
  };
  std::vector<Part> parts_;
};

}  // namespace cohort
