// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/step/exact_tree.h"
#include "cohort/tensor.h"

namespace cohort {

// Loops over flat memory of float32, bfloat16 or float16. The bits of an element depend
// neither on where a stretch is cut nor on which rank computes it.

// What is summed and updated at once: 512 KB of float32, which the second pass finds
// hot in a second-level cache. Shorter stretches make the processor's prefetching start
// anew too often: 4,096 elements made an update of 100 MB take twice as long.
inline constexpr int64_t kStretch = 131'072;

// out = the inputs added in their order, in float32.
void sum_in_order(at::ScalarType dtype, std::span<const void* const> inputs,
                  int64_t count, float* out);

// out = in, or out += in, in float32.
void widen(at::ScalarType dtype, const void* in, int64_t count, float* out);
void widen_add(at::ScalarType dtype, const void* in, int64_t count, float* out);
// Elements [at, at + count) in float32: where they are, or widened into `memory`.
const float* widened_part(const Tensor& flat, int64_t at, int64_t count,
                          std::vector<float>& memory);
// In float64, of what is in it.
const double* widened_part(const Tensor& flat, int64_t at, int64_t count,
                           std::vector<double>& memory);

// Calls `run` with a float, or with a double where weights are kept in that.
template <typename Run>
void with_kept_type(at::ScalarType kept, const Run& run) {
  if (kept == at::kDouble) return run(double{});
  run(float{});
}
// out = in, rounded.
void narrow(at::ScalarType dtype, const float* in, int64_t count, void* out);

// Adds sums of slices as their tree says, as far as they meet. Made once for a list of
// nodes.
class TreeFold {
 public:
  TreeFold(int slices, std::span<const TreeNode> nodes);

  // What is left: one node if the sums cover the whole batch.
  const std::vector<TreeNode>& left() const { return left_; }
  // How often the last sum is added to the one before it, after each node.
  const std::vector<int>& merges() const { return merges_; }

  // One pointer in for each node, one out for each node that is left.
  void operator()(std::span<const float* const> values, int64_t count,
                  std::span<float* const> out);

 private:
  std::vector<TreeNode> left_;
  std::vector<int> merges_;  // after each push
  std::vector<float> scratch_;
  int depth_ = 0;
};

// False if one of them is infinite or no number.
template <typename Real>
bool all_finite(const Real* values, int64_t count);

}  // namespace cohort
