// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// All of this is in one lane, so the order of the list is the order of time.
class Compute {
 public:
  Compute(const RoleView& role, const StepFacts& facts)
      : role_(role), blocks_(facts.blocks), slices_(role.role().slices) {}

  void check(bool forward_only) {
    const auto forward = find(ActionKind::kForward, /*all=*/true);
    check_order(forward, /*rising=*/true);
    const auto recompute = find(ActionKind::kRecompute, /*all=*/false);
    const auto backward = find(ActionKind::kBackward, !forward_only);
    check_one_at_a_time(forward, forward_only ? forward : backward);
    if (forward_only) return;
    check_order(backward, /*rising=*/false);
    for (int b = 0; b < blocks_; ++b)
      for (int s = 0; s < slices_; ++s)
        check_between(forward[at(b, s)], recompute[at(b, s)], backward[at(b, s)]);
    check_alike(recompute);
    check_sums();
  }

 private:
  size_t at(int block, int slice) const {
    return static_cast<size_t>(block) * slices_ + slice;
  }

  std::vector<int> find(ActionKind kind, bool all) const {
    const int64_t places = int64_t{blocks_} * slices_;
    const auto& actions = role_.all(kind);
    if (all && static_cast<int64_t>(actions.size()) < places)
      refuse_missing(kind, places);
    std::vector<int> found(places, kNone);
    for (int i : actions) {
      int& place = found[at(role_.at(i).block, role_.at(i).slice)];
      if (place != kNone) role_.refuse(i, text("was done already by action ", place));
      place = i;
    }
    return found;
  }

  [[noreturn]] void refuse_missing(ActionKind kind, int64_t places) const {
    const auto& actions = role_.all(kind);
    role_.refuse(text("has ", actions.size(), " ", name_of(kind), "s; legal: ", places,
                      ", one for each of ", blocks_, " blocks and ", slices_,
                      " slices"));
  }

  // Blocks of a slice one after another; slices of a block one after another.
  void check_order(const std::vector<int>& actions, bool rising) const {
    for (int b = 0; b < blocks_; ++b)
      for (int s = 0; s < slices_; ++s) {
        const int here = actions[at(b, s)];
        const int next = rising ? b - 1 : b + 1;
        if (next >= 0 && next < blocks_ && actions[at(next, s)] > here)
          role_.refuse(here, text("comes before block ", next, " of the slice (action ",
                                  actions[at(next, s)], ")"));
        if (s > 0 && actions[at(b, s - 1)] > here)
          role_.refuse(here,
                       text("comes before slice ", s - 1, " of the block (action ",
                            actions[at(b, s - 1)], ")"));
      }
  }

  void check_between(int forward, int recompute, int backward) const {
    if (backward < forward)
      role_.refuse(backward, text("comes before its Forward (action ", forward, ")"));
    if (recompute != kNone && (recompute < forward || recompute > backward))
      role_.refuse(recompute, text("is not between its Forward (action ", forward,
                                   ") and its Backward (action ", backward, ")"));
  }

  // An executor without a pipeline holds the activations of one slice.
  void check_one_at_a_time(const std::vector<int>& begin,
                           const std::vector<int>& end) const {
    for (int s = 1; s < slices_; ++s)
      for (int b = 0; b < blocks_; ++b)
        if (end[at(b, s - 1)] > begin[at(0, s)])
          role_.refuse(begin[at(0, s)],
                       text("begins a slice before the one before it is done (action ",
                            end[at(b, s - 1)], ")"));
  }

  // An executor decides by block what forward keeps.
  void check_alike(const std::vector<int>& recompute) const {
    for (int b = 0; b < blocks_; ++b)
      for (int s = 1; s < slices_; ++s)
        if ((recompute[at(b, s)] == kNone) != (recompute[at(b, 0)] == kNone))
          role_.refuse(text("recomputes block ", b,
                            " in some slices and not in others; legal: all or none ",
                            "(see slices 0 and ", s, ")"));
  }

  // Sums depend on their order: slice by slice, also where blocks share a bucket.
  void check_sums() const {
    std::vector<int> newest;
    for (int i : role_.all(ActionKind::kBackward))
      for (int bucket : role_.at(i).buckets) {
        if (static_cast<size_t>(bucket) >= newest.size()) newest.resize(bucket + 1, -1);
        if (newest[bucket] > role_.at(i).slice)
          role_.refuse(i, text("adds to bucket ", bucket, " after slice ",
                               newest[bucket], "; legal: slice by slice"));
        newest[bucket] = role_.at(i).slice;
      }
  }

  const RoleView& role_;
  int blocks_;
  int slices_;
};

}  // namespace

void check_compute(const RoleView& role, const StepFacts& facts) {
  Compute(role, facts).check(facts.forward_only);
}

}  // namespace cohort
