// SPDX-License-Identifier: Apache-2.0
// R10, and R13 as far as it tells of statistics: what a forward leaves for later is
// used, once.
#include <map>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

bool frees(ActionKind kind, What what) {
  if (what == What::kDeferred) return kind == ActionKind::kBackwardWeight;
  return what == What::kFlight &&
         (kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput);
}

bool is_freed(What what) { return what == What::kFlight || what == What::kDeferred; }

void check_flights(const RoleView& role) {
  std::map<Value, int> writer;
  std::set<Value> freed;
  for (int i = 0; i < role.size(); ++i) {
    const Action& action = role.at(i);
    for (const auto& access : action.reads)
      if (frees(action.kind, access.value.what) &&
          !freed.insert(access.value.any_version()).second)
        role.refuse(
            i, text("R10: frees ", access.value.text(), " once more; legal: once"));
    for (const auto& access : action.writes) {
      if (!is_freed(access.value.what)) continue;
      if (freed.contains(access.value.any_version()))
        role.refuse(i, text("R10: writes ", access.value.text(), ", which was freed"));
      writer[access.value.any_version()] = i;
    }
  }
  for (const auto& [value, action] : writer)
    if (!freed.contains(value))
      role.refuse(action,
                  text("R10: writes ", value.text(), ", which nobody uses and frees"));
}

void check_statistics(const RoleView& role) {
  std::set<Value> folded;
  for (int i : role.all(ActionKind::kFoldBuffers))
    for (const auto& access : role.at(i).reads) folded.insert(access.value);
  const int commit = role.size() - 1;
  bool read = false;
  for (const auto& access : role.at(commit).reads)
    read |= access.value.what == What::kFolded;
  for (int i : role.all(ActionKind::kForward))
    for (const auto& access : role.at(i).writes) {
      if (access.value.what != What::kStat) continue;
      if (!read) role.refuse(commit, "R13: does not read the statistics of the step");
      if (!folded.contains(access.value))
        role.refuse(commit, text("R13: has statistics without ", access.value.text()));
    }
}

}  // namespace

void check_lives(const RoleView& role, const StepFacts& facts) {
  check_flights(role);
  if (!facts.forward_only) check_statistics(role);
  const int commit = role.size() - 1;
  for (const ActionKind need : role.at(commit).needs)
    if (role.all(need).empty())
      role.refuse(commit, text("R13: needs a ", name_of(need), ", and there is none"));
}

}  // namespace cohort
