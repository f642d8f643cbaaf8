// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/run_ahead.h"

#include <algorithm>
#include <set>

namespace cohort {
namespace {

// A peer sends it from its own backward, which it may not have begun.
bool waits_for_backward(const Action& action) {
  return action.kind == ActionKind::kRecv &&
         std::ranges::any_of(action.writes, [](const Access& access) {
           return access.value.what == What::kActGrad;
         });
}

bool finishes(ActionKind kind) {
  return kind == ActionKind::kUpdate || kind == ActionKind::kReduceUpdate ||
         kind == ActionKind::kCommit;
}

// Values, whichever version, and memory that a step is finished with.
struct Remains {
  std::set<Value> values;
  std::set<int> buffers;

  explicit Remains(const Role& role) {
    for (const auto& action : role.actions)
      if (finishes(action.kind))
        for (const auto& access : action.reads) add(access);
  }

  void add(const Access& access) {
    if (access.value.what == What::kLoss) return;
    values.insert(access.value.any_version());
    if (access.buffer != kNone) buffers.insert(access.buffer);
  }

  bool has(const Access& access) const {
    return values.contains(access.value.any_version()) ||
           buffers.contains(access.buffer);
  }
};

}  // namespace

int actions_ahead(const Role& role) {
  const Remains remains(role);
  const auto first = std::ranges::find_if(role.actions, [&](const Action& action) {
    return is_backward(action.kind) || waits_for_backward(action) ||
           std::ranges::any_of(action.writes, [&](const Access& access) {
             return remains.has(access);
           });
  });
  return static_cast<int>(first - role.actions.begin());
}

}  // namespace cohort
