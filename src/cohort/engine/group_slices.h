// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/exact_tree.h"
#include "cohort/step/mesh.h"

namespace cohort {

// Which slices of the batch each member of a rank's shard group adds up, and what each
// is left with. Numbers alone: every rank comes to the same ones.
//
// In round r each member that has so many computes its slice number r.
class GroupSlices {
 public:
  // For the `members` ranks that differ from `rank` of the world along kCut alone.
  GroupSlices(const Mesh& mesh, int rank, int members, int slices);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  int rank_of(int member) const { return mesh_.with(rank_, Axis::kCut, member); }
  int slices() const { return slices_; }  // in the batch
  int rounds() const { return rounds_; }  // slices of the rank with most

  SliceRange own() const { return mesh_.slices(rank_, slices_); }
  SliceRange of_member(int member) const {
    return mesh_.slices(rank_of(member), slices_);
  }
  bool has_slice(int member, int round) const {
    return round < of_member(member).count();
  }
  // How many sums a member is left with when it has added up its slices.
  size_t partials(int member) const { return partials_[member]; }
  // What the ranks of one shard group are left with then; and of this rank's own.
  std::vector<TreeNode> nodes_of_group(int group) const;
  std::vector<TreeNode> nodes() const;

  // Where a member's stack of sums is when its slice of that round comes, and how often
  // sums are merged then.
  struct Push {
    int top = 0, merges = 0;
  };
  Push push_of(int member, int round) const;

 private:
  Mesh mesh_;
  int rank_;
  int slices_;
  int rounds_;
  std::vector<size_t> partials_;  // by member
};

}  // namespace cohort
