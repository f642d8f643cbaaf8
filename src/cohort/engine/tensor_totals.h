// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/norm.h"
#include "cohort/update_rule.h"

namespace cohort {

// The sums over whole tensors that a rule with reductions() needs (update_rule.h): its
// first phase, over the ranks. Other rules have none.
//
// Chunks belong to one rank at every world size and shard level, and are added in a
// tree over each tensor: so the bits are the same however the state is cut. Borrows
// all it is given. Thread safety: none.
class TensorTotals {
 public:
  TensorTotals(const FlatState& state, const UpdateRule& rule);

  // From this rank's shards and the sums of their gradients, which stay as they are.
  // Collective over the sharers: afterwards all of them have the totals of every tensor
  // that one of them has a shard of.
  void add_up(const GradientSums& gradients, const StepScalars& scalars,
              const Sharers& sharers);

  // The totals of FlatState::places()[place], after add_up(); nothing of one that does
  // not adapt.
  std::span<const double> of(int place) const;

 private:
  void reduce(const BucketState& bucket, const ParameterRange& range, const Tensor& sum,
              const StepScalars& scalars, double* chunks) const;
  template <typename Real>
  void reduce_chunks(const BucketState& bucket, const ParameterRange& range,
                     const Tensor& sum, const StepScalars& scalars, ChunkRange those,
                     double* chunks) const;
  template <typename Do>
  void for_each_tensor(const Do& what) const;

  const FlatState& state_;
  const UpdateRule& rule_;
  const int64_t width_;         // sums for each tensor
  std::vector<double> totals_;  // by place
};

// Applies `rule` to elements [begin, begin + count) of a bucket, which lie in `shard`,
// with `gradient` pointing at element `begin`. `ranges`: of the bucket.
template <typename Real>
void update_range(const UpdateRule& rule, const std::vector<ParameterRange>& ranges,
                  ShardState& shard, int64_t begin, int64_t count, const Real* gradient,
                  const TensorTotals& totals, const StepScalars& scalars);

}  // namespace cohort
