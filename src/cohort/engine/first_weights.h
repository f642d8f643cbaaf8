// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/tensor.h"

namespace cohort {

struct FlatParameter;
struct RankGroups;

// What the weights of a chain are when a world begins, bucket by bucket:
//
// - nobody's, all zero, where the state comes from peers or a file;
// - by FirstValue, where every parameter of every rank has the same one: a rank makes
//   what it keeps, and nothing travels;
// - else those of rank 0, or of the first rank with the same parts of tensors. They
//   pass through one whole bucket, and a rank takes what is its.
//
// Borrows all it is given. Thread safety: none.
class FirstWeights {
 public:
  // Collective, unless `takes_over`, which has nobody's.
  FirstWeights(const std::vector<FlatParameter>& places, const RankGroups& groups,
               bool takes_over);

  // Turns to a bucket of `numel` elements. Collective. `room`, if defined, is memory
  // for the whole bucket in float32 that may be written to. CommError if the first rank
  // has no weights any more.
  void turn_to(int bucket, int64_t numel, const Tensor& room);

  // Elements [begin, begin + out.numel()) of the bucket; zero where no parameter is.
  // `out` is flat, of any floating dtype.
  void read(int64_t begin, const Tensor& out) const;

 private:
  enum class Source { kNobody, kFirstValues, kFirstRank };

  static Source source_of(const std::vector<FlatParameter>& places,
                          Communicator& world);
  void make(int64_t begin, const Tensor& out) const;

  const std::vector<FlatParameter>& places_;
  Communicator& alike_;
  Source source_;
  int bucket_ = 0;
  Tensor whole_;  // the first rank's
};

}  // namespace cohort
