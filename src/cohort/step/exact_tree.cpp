// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/exact_tree.h"

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort {
namespace {

bool are_siblings(TreeNode left, TreeNode right) {
  return left.level == right.level && left.index % 2 == 0 &&
         right.index == left.index + 1;
}

}  // namespace

// A node whose right sibling would begin behind the last slice is its own parent.
TreeNode ExactTree::lifted(TreeNode node) const {
  while ((1 << node.level) < slices_ && node.index % 2 == 0 &&
         (node.index + 1) << node.level >= slices_)
    node = {node.level + 1, node.index / 2};
  return node;
}

int ExactTree::push(TreeNode node) {
  const TreeNode added = lifted(node);
  COHORT_CHECK(nodes_.empty() || (nodes_.back().index + 1) << nodes_.back().level <=
                                     added.index << added.level,
               "slices are pushed from left to right");
  nodes_.push_back(added);
  int merges = 0;
  while (nodes_.size() > 1 && are_siblings(nodes_[nodes_.size() - 2], nodes_.back())) {
    nodes_.pop_back();
    nodes_.back() = lifted({nodes_.back().level + 1, nodes_.back().index / 2});
    ++merges;
  }
  return merges;
}

bool ExactTree::complete() const {
  return nodes_.size() == 1 && nodes_[0].index == 0 && 1 << nodes_[0].level >= slices_;
}

void push_on_stack(bool comes, int top, int merges, const StackSteps& steps) {
  if (comes && merges == 0) return steps.put(top);
  if (comes) {
    steps.add(--top);
    --merges;
  }
  for (; merges > 0; --merges) steps.merge(--top);
}

std::vector<TreeNode> partials_of(SliceRange range, int slices) {
  ExactTree tree(slices);
  for (int s = range.begin; s < range.end; ++s) tree.push({0, s});
  return tree.nodes();
}

int stack_height(SliceRange range, int slices) {
  ExactTree tree(slices);
  size_t most = 1;
  for (int s = range.begin; s < range.end; ++s) {
    tree.push({0, s});
    most = std::max(most, tree.nodes().size());
  }
  return static_cast<int>(most);
}

int buffers_for(SliceRange range, int slices) {
  ExactTree tree(slices);
  int most = 1;
  for (int s = range.begin; s < range.end; ++s) {
    most = std::max(most, static_cast<int>(tree.nodes().size()) + 1);
    tree.push({0, s});
  }
  return most;
}

}  // namespace cohort
