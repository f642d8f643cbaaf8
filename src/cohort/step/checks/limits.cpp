// SPDX-License-Identifier: Apache-2.0
// What an executor without a pipeline can do; the rules know of no such limits.
#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// It holds the activations of one slice.
void check_one_slice_at_a_time(const RoleView& role) {
  int newest = 0;
  std::vector<int> begun(1, kNone);  // by slice: its first action
  for (int i = 0; i < role.size(); ++i) {
    const Action& action = role.at(i);
    if (action.block == kNone) continue;
    if (action.slice < newest)
      role.refuse(
          begun[newest],
          text("limit: begins a slice before the one before it is done (action ", i,
               "); legal: one slice at a time"));
    if (action.slice == newest) continue;
    newest = action.slice;
    begun.resize(static_cast<size_t>(newest) + 1, kNone);
    begun[newest] = i;
  }
}

// It decides by block what forward keeps.
void check_recomputed_alike(const RoleView& role, const StepFacts& facts) {
  std::vector<int> times(facts.blocks, 0);
  for (int i : role.all(ActionKind::kRecompute)) ++times[role.at(i).block];
  for (int b = 0; b < facts.blocks; ++b)
    if (times[b] != 0 && times[b] != role.role().slices)
      role.refuse(text("limit: recomputes block ", b, " in ", times[b], " of ",
                       role.role().slices, " slices; legal: all or none"));
}

}  // namespace

void check_limits(const RoleView& role, const StepFacts& facts) {
  check_one_slice_at_a_time(role);
  check_recomputed_alike(role, facts);
}

}  // namespace cohort
