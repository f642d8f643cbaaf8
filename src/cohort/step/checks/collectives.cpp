// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/meetings.h"

namespace cohort {
namespace {

bool equal(const Action& a, const Action& b) {
  return a.kind == b.kind && a.buckets == b.buckets && a.slice == b.slice &&
         a.bytes == b.bytes;
}

// How roles meet in the groups. Ranks of a role do the same, so a role stands for all
// of them; Send and Recv, when they come, are matched here by the ranks they name.
class Meeting {
 public:
  explicit Meeting(const Schedule& schedule)
      : schedule_(schedule),
        groups_(schedule.groups.size()),
        roles_(schedule.roles.size()),
        calls_(roles_, std::vector<std::vector<int>>(groups_)),
        ordinal_(roles_),
        peers_(find_meetings(schedule)) {
    for (size_t r = 0; r < roles_; ++r) {
      const auto& actions = schedule.roles[r].actions;
      ordinal_[r].resize(actions.size());
      for (size_t i = 0; i < actions.size(); ++i) {
        if (!is_call(actions[i])) continue;
        auto& calls = calls_[r][actions[i].lane - 1];
        calls.push_back(static_cast<int>(i));
        ordinal_[r][i] = static_cast<int>(calls.size());
      }
    }
  }

  void check_equal() const {
    for (size_t r = 0; r < roles_; ++r)
      for (size_t g = 0; g < groups_; ++g)
        for (int peer : peers_[r][g])
          if (peer < static_cast<int>(r)) compare(peer, static_cast<int>(r), g);
  }

  // Begins actions in the order of each list: stricter than lanes, so that an executor
  // with one thread never hangs either.
  void check_no_deadlock() {
    begun_.assign(roles_, 0);
    arrived_.assign(roles_, std::vector<int>(groups_, 0));
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < roles_; ++r) moved |= advance(r);
    }
    for (size_t r = 0; r < roles_; ++r)
      if (begun_[r] < schedule_.roles[r].actions.size()) refuse_deadlock(r);
  }

 private:
  bool is_call(const Action& action) const {
    return action.lane >= 1 && action.lane <= static_cast<int>(groups_);
  }

  void compare(int a, int b, size_t group) const {
    const auto& ours = calls_[a][group];
    const auto& theirs = calls_[b][group];
    const auto& actions_a = schedule_.roles[a].actions;
    const auto& actions_b = schedule_.roles[b].actions;
    for (size_t k = 0; k < std::max(ours.size(), theirs.size()); ++k) {
      if (k < ours.size() && k < theirs.size() &&
          equal(actions_a[ours[k]], actions_b[theirs[k]]))
        continue;
      const bool here = k < theirs.size();
      const int role = here ? b : a, other = here ? a : b;
      const auto& calls = calls_[other][group];
      refuse_role(
          schedule_, role, calls_[role][group][k],
          text("is call ", k, " in group ", schedule_.groups[group].name,
               "; there, role ", other, " (ranks ",
               ranks_text(schedule_.roles[other].ranks), ") has ",
               k < calls.size()
                   ? text(action_text(schedule_.roles[other], calls[k]), " of ",
                          schedule_.roles[other].actions[calls[k]].bytes, " bytes")
                   : std::string("none")));
    }
  }

  bool is_done(size_t role, int action) const {
    if (static_cast<size_t>(action) >= begun_[role]) return false;
    const int ordinal = ordinal_[role][action];
    if (ordinal == 0) return true;
    const int group = schedule_.roles[role].actions[action].lane - 1;
    return missing_peer(role, group, ordinal) == kNone;
  }

  int missing_peer(size_t role, int group, int ordinal) const {
    for (int peer : peers_[role][group])
      if (arrived_[peer][group] < ordinal) return peer;
    return kNone;
  }

  int unmet_wait(size_t role) const {
    for (int wait : schedule_.roles[role].actions[begun_[role]].waits)
      if (!is_done(role, wait)) return wait;
    return kNone;
  }

  bool advance(size_t role) {
    const auto& actions = schedule_.roles[role].actions;
    const size_t from = begun_[role];
    while (begun_[role] < actions.size() && unmet_wait(role) == kNone) {
      const Action& action = actions[begun_[role]++];
      if (is_call(action)) ++arrived_[role][action.lane - 1];
    }
    return begun_[role] > from;
  }

  [[noreturn]] void refuse_deadlock(size_t role) const {
    const int stuck = static_cast<int>(begun_[role]);
    const int wait = unmet_wait(role);
    const int group = schedule_.roles[role].actions[wait].lane - 1;
    const int peer = missing_peer(role, group, ordinal_[role][wait]);
    const Role& other = schedule_.roles[peer];
    refuse_role(
        schedule_, static_cast<int>(role), stuck,
        text("waits for ever for action ", wait, ", in which role ", peer, " (ranks ",
             ranks_text(other.ranks), ") never joins: it is stuck at ",
             action_text(other, static_cast<int>(begun_[peer]))));
  }

  const Schedule& schedule_;
  size_t groups_, roles_;
  std::vector<std::vector<std::vector<int>>> calls_;  // by role, group: actions
  std::vector<std::vector<int>> ordinal_;  // by role, action: which call; 0: none
  std::vector<std::vector<std::set<int>>> peers_;  // by role, group: roles it meets
  std::vector<size_t> begun_;                      // by role: actions
  std::vector<std::vector<int>> arrived_;          // by role, group: calls
};

}  // namespace

void check_collectives(const Schedule& schedule) {
  Meeting meeting(schedule);
  meeting.check_equal();
  meeting.check_no_deadlock();
}

}  // namespace cohort
