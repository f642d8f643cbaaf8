// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/checks/role_view.h"

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort {
namespace {

std::string role_text(const Role& role, int index) {
  return text("role ", index, " (ranks ", ranks_text(role.ranks), ")");
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!out.empty()) out += ';';
    out += std::to_string(ranks[i]);
    if (end > i + 1) out += '-' + std::to_string(ranks[end - 1]);
    i = end;
  }
  return out;
}

std::string action_text(const Role& role, int action) {
  const Action& what = role.actions[action];
  std::string out = text("action ", action, " ", name_of(what.kind));
  if (what.block != kNone) out += text(" block ", what.block);
  if (what.kind == ActionKind::kReduce && what.buckets == std::vector{kLossBucket})
    return out + " of the loss";
  for (size_t i = 0; i < what.buckets.size() && what.block == kNone && i < 4; ++i)
    out += text(i == 0 ? " bucket " : ",", what.buckets[i]);
  if (what.slice != kNone) out += text(" slice ", what.slice);
  return out;
}

void refuse_role(const Schedule& schedule, int role, int action,
                 const std::string& reason) {
  const Role& what = schedule.roles[role];
  throw ConfigError(text("[step.check] ", role_text(what, role), ", ",
                         action_text(what, action), ": ", reason));
}

RoleView::RoleView(const Role& role, int index, int lanes)
    : role_(role),
      index_(index),
      lanes_(lanes),
      position_(role_.actions.size()),
      clocks_(role_.actions.size() * lanes),
      by_kind_(kActionKinds) {
  std::vector<int> last(lanes, kNone), length(lanes, 0);
  for (int i = 0; i < size(); ++i) {
    const Action& action = at(i);
    int* clock = clocks_.data() + static_cast<size_t>(i) * lanes_;
    const auto join = [&](int other) {
      for (int l = 0; l < lanes_; ++l)
        clock[l] = std::max(clock[l], this->clock(other)[l]);
    };
    if (last[action.lane] != kNone) join(last[action.lane]);
    for (int wait : action.waits) join(wait);
    position_[i] = clock[action.lane] = ++length[action.lane];
    last[action.lane] = i;
    by_kind_[static_cast<size_t>(action.kind)].push_back(i);
  }
}

void RoleView::refuse(int action, const std::string& reason) const {
  throw ConfigError(text("[step.check] ", role_text(role_, index_), ", ",
                         action_text(role_, action), ": ", reason));
}

void RoleView::refuse(const std::string& reason) const {
  throw ConfigError(text("[step.check] ", role_text(role_, index_), ": ", reason));
}

void RoleView::require_before(int a, int b, const char* why) const {
  if (before(a, b)) return;
  refuse(b, text(a < b ? "does not wait for " : "comes before ", action_text(role_, a),
                 "; ", why));
}

}  // namespace cohort
