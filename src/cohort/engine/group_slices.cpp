// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/group_slices.h"

namespace cohort {

GroupSlices::GroupSlices(const Mesh& mesh, int rank, int members, int slices)
    : mesh_(mesh), rank_(rank), slices_(slices), rounds_(mesh.rounds(slices)) {
  for (int m = 0; m < members; ++m)
    partials_.push_back(partials_of(of_member(m), slices_).size());
}

std::vector<TreeNode> GroupSlices::nodes_of_group(int group) const {
  std::vector<TreeNode> nodes;
  const int first = mesh_.with(rank_, Axis::kReplicate, group);
  for (const int rank : mesh_.members(first, {Axis::kCut}))
    for (const TreeNode& node : partials_of(mesh_.slices(rank, slices_), slices_))
      nodes.push_back(node);
  return nodes;
}

std::vector<TreeNode> GroupSlices::nodes() const {
  return nodes_of_group(mesh_.coordinate(rank_, Axis::kReplicate));
}

GroupSlices::Push GroupSlices::push_of(int member, int round) const {
  const SliceRange range = of_member(member);
  ExactTree tree(slices_);
  for (int s = 0; s < round; ++s) tree.push({0, range.begin + s});
  const int top = static_cast<int>(tree.nodes().size());
  return {top, tree.push({0, range.begin + round})};
}

}  // namespace cohort
