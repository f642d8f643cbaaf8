// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/norm.h"
#include "cohort/engine/state_home.h"

namespace cohort {

// The norm of a gradient that lies on a device, and the sums over whole tensors that a
// rule with reductions() needs; in chunks that belong to one rank at every world size,
// as norm.h and tensor_totals.h have them. Borrows all it is given but the home.
class DeviceNorm {
 public:
  DeviceNorm(const FlatState& state, const StateHome& home, const UpdateRule& rule,
             const RankGroups& groups);

  // How a rule updates a shard of that bucket, this rank's or one that it mirrors: the
  // rows of its sums are those below.
  std::vector<UpdateRange> ranges_of(int bucket, const ShardState& shard) const;

  // Writes norm and grad_scale to the numbers of the step (kernels/kernel_arguments.h),
  // and marks them if the norm is no number. Collective.
  void measure(const GradientSums& gradients, const Sharers& sharers, double limit,
               const Tensor& numbers);

  // `reduce` writes the sums of a bucket's chunks. Collective; afterwards totals() has
  // those of every tensor that adapts.
  using Reduce = std::function<void(int bucket, const Tensor& sums)>;
  void add_up(const Sharers& sharers, const Reduce& reduce);
  const Tensor& totals() const { return totals_; }

 private:
  struct Adapting {
    int place = 0;
    int64_t first = 0;  // row of the first chunk of this rank's part
  };

  void lay_out_squares();
  void lay_out_sums(int64_t width);
  Tensor zeros(at::IntArrayRef shape) const;

  const FlatState& state_;
  StateHome home_;
  const int part_, parts_;      // which part of cut tensors, of how many
  std::vector<Tensor> chunks_;  // by bucket: table; undefined where nothing is held
  Tensor squares_;              // those of all chunks
  std::vector<Adapting> adapting_;
  Tensor tensors_, sums_, totals_;  // table; of chunks; of tensors
};

}  // namespace cohort
