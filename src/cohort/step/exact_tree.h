// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "cohort/step/slices.h"

namespace cohort {

// The sum of slices [index << level, (index + 1) << level) of a batch, as far as the
// batch has them.
struct TreeNode {
  int level = 0;
  int index = 0;

  bool operator==(const TreeNode&) const = default;
};

// The order of --exact: in what order gradients of slices are added, so that the sum
// has the same bits however many ranks share the work. One binary tree over all slices
// of the batch; engine/gradient_sums adds along it.
//
// Nodes are pushed from left to right; two that are siblings become their parent at
// once. What is left is a stack of sums that only others can complete.
class ExactTree {
 public:
  explicit ExactTree(int slices) : slices_(slices) {}

  // Returns how often, after this push, the last sum of the stack is added to the one
  // before it and dropped.
  int push(TreeNode node);

  const std::vector<TreeNode>& nodes() const { return nodes_; }
  bool complete() const;  // one sum is left, that of all slices

 private:
  TreeNode lifted(TreeNode node) const;

  int slices_;
  std::vector<TreeNode> nodes_;
};

// How a stack of sums follows a tree, wherever it lies.
struct StackSteps {
  std::function<void(int)> put;    // what comes becomes sum i
  std::function<void(int)> add;    // it is added to sum i
  std::function<void(int)> merge;  // sum i + 1 is added to sum i
};

// Puts a sum on top of `top` others and merges the last two so many times. Unless it
// `comes` it lies there already.
void push_on_stack(bool comes, int top, int merges, const StackSteps& steps);

// The sums a rank is left with that adds up slices `range` alone.
std::vector<TreeNode> partials_of(SliceRange range, int slices);

// The most sums such a rank is left with at once, while it adds.
int stack_height(SliceRange range, int slices);

// The same, with the slice it computes.
int buffers_for(SliceRange range, int slices);

}  // namespace cohort
