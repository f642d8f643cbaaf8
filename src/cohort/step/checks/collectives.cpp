// SPDX-License-Identifier: Apache-2.0
// R4 to R6: how roles meet in groups and on links. Ranks of a role do the same, so a
// role stands for all of them.
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/roles_met.h"

namespace cohort {
namespace {

// What a Send reads and its Recv writes.
const Access* moved(const Action& action) {
  const auto& moved = action.kind == ActionKind::kSend ? action.reads : action.writes;
  return moved.size() == 1 ? &moved[0] : nullptr;
}

// Where gradients lie that others may read.
int slot_of(const Action& action) {
  for (const auto* accesses : {&action.reads, &action.writes})
    for (const auto& access : *accesses)
      if (access.value.what == What::kLeaf) return access.buffer;
  return kNone;
}

bool equal(const Action& a, const Action& b) {
  return a.kind == b.kind && a.buckets == b.buckets && a.slice == b.slice &&
         a.bytes == b.bytes && slot_of(a) == slot_of(b);
}

// A gradient that is handed on is complete (R7); its copy is the first there.
bool same_value(const Value& sent, const Value& received) {
  if (sent.what != What::kPartial && sent.what != What::kSum) return sent == received;
  return sent.any_version() == received;
}

bool match(const Action& send, const Action& recv) {
  return send.kind == ActionKind::kSend && recv.kind == ActionKind::kRecv &&
         send.bytes == recv.bytes && send.buckets == recv.buckets &&
         same_value(moved(send)->value, moved(recv)->value);
}

// The calls of one role in one lane, or inside blocks in one group, in order.
class CallOrder {
 public:
  CallOrder(const Schedule& schedule, bool one_at_a_time)
      : schedule_(schedule),
        one_at_a_time_(one_at_a_time),
        lanes_(schedule.channels.size()),
        roles_(schedule.roles.size()),
        calls_(roles_, std::vector<std::vector<int>>(lanes_)),
        ordinal_(roles_),
        peers_(roles_met_in_lanes(schedule)),
        inner_peers_(roles_met_in_groups(schedule)) {
    for (size_t r = 0; r < roles_; ++r) {
      const auto& actions = schedule.roles[r].actions;
      ordinal_[r].resize(actions.size());
      for (size_t i = 0; i < actions.size(); ++i) {
        if (is_link(actions[i].lane)) check_transfer(r, static_cast<int>(i));
        if (!is_call(r, actions[i])) continue;
        auto& calls = calls_[r][actions[i].lane];
        calls.push_back(static_cast<int>(i));
        ordinal_[r][i] = static_cast<int>(calls.size());
      }
    }
  }

  void check_equal() const {
    for (size_t r = 0; r < roles_; ++r)
      for (size_t lane = 0; lane < lanes_; ++lane)
        for (int peer : peers_[r][lane])
          if (peer < static_cast<int>(r)) compare(peer, static_cast<int>(r), lane);
    for (size_t r = 0; r < roles_; ++r)
      for (size_t g = 0; g < schedule_.groups.size(); ++g)
        for (int peer : inner_peers_[r][g])
          if (peer < static_cast<int>(r)) compare_inner(peer, static_cast<int>(r), g);
  }

  // Begins actions in the order of each list: stricter than lanes, so that an executor
  // with one thread never hangs either. Nothing is buffered: a Send is done when its
  // Recv was begun.
  void check_no_deadlock() {
    begun_.assign(roles_, 0);
    arrived_.assign(roles_, std::vector<int>(lanes_, 0));
    inner_.assign(roles_, std::vector<int>(schedule_.groups.size(), 0));
    entered_.assign(roles_, false);
    exchange_.assign(roles_, kNone);
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < roles_; ++r) moved |= advance(r);
    }
    for (size_t r = 0; r < roles_; ++r)
      if (begun_[r] < schedule_.roles[r].actions.size()) refuse_deadlock(r);
  }

 private:
  bool is_link(int lane) const {
    return schedule_.channels[lane].kind == Channel::Kind::kLink;
  }
  bool is_call(size_t role, const Action& action) const {
    return !peers_[role][action.lane].empty();
  }
  const Action& action(size_t role, int index) const {
    return schedule_.roles[role].actions[index];
  }

  // A role stands at one end of each link that it uses.
  void check_transfer(size_t role, int index) const {
    const Action& what = action(role, index);
    const Channel& link = schedule_.channels[what.lane];
    const int place =
        schedule_.mesh.coordinate(schedule_.roles[role].ranks[0], Axis::kPipe);
    const auto refuse = [&](const std::string& why) {
      refuse_role(schedule_, static_cast<int>(role), index, "R5: " + why);
    };
    if (!is_transfer(what)) refuse("is on a link; legal: Send and Recv");
    if (!moved(what)) refuse("moves no value, or several; legal: one");
    if (what.slice != moved(what)->value.slice)
      refuse(text("moves ", moved(what)->value.text(), "; legal: one of its slice"));
    const int legal = what.kind == ActionKind::kSend ? link.from : link.to;
    if (place != legal)
      refuse(text("is on link ", schedule_.name_of_lane(what.lane), " at place ", place,
                  "; legal: ", legal));
  }

  std::string where(size_t lane) const {
    return text(is_link(static_cast<int>(lane)) ? "on link " : "in group ",
                schedule_.name_of_lane(static_cast<int>(lane)));
  }

  bool agree(int a, int b, size_t lane, size_t k) const {
    const Action& ours = action(a, calls_[a][lane][k]);
    const Action& theirs = action(b, calls_[b][lane][k]);
    if (!is_link(static_cast<int>(lane))) return equal(ours, theirs);
    return match(ours, theirs) || match(theirs, ours);
  }

  void compare(int a, int b, size_t lane) const {
    const auto& ours = calls_[a][lane];
    const auto& theirs = calls_[b][lane];
    for (size_t k = 0; k < std::max(ours.size(), theirs.size()); ++k) {
      if (k < ours.size() && k < theirs.size() && agree(a, b, lane, k)) continue;
      const bool here = k < theirs.size();
      const int role = here ? b : a, other = here ? a : b;
      const auto& calls = calls_[other][lane];
      const bool link = is_link(static_cast<int>(lane));
      const auto shown = [&](int index) {
        const Action& what = action(other, index);
        return text(action_text(schedule_.roles[other], index), " of ", what.bytes,
                    " bytes", link ? text(" (", moved(what)->value.text(), ")") : "");
      };
      const Action& what = action(role, calls_[role][lane][k]);
      refuse_role(
          schedule_, role, calls_[role][lane][k],
          text(link ? text("R5: moves ", moved(what)->value.text(), " and ") : "R4: ",
               "is call ", k, " ", where(lane), "; there, role ", other, " (ranks ",
               ranks_text(schedule_.roles[other].ranks), ") has ",
               k < calls.size() ? shown(calls[k]) : std::string("none")));
    }
  }

  // Each inner call in a group, with the action that makes it.
  std::vector<std::pair<int, const InnerCall*>> inner_calls(int role, size_t g) const {
    std::vector<std::pair<int, const InnerCall*>> all;
    const auto& actions = schedule_.roles[role].actions;
    for (size_t i = 0; i < actions.size(); ++i)
      for (const auto& call : actions[i].calls)
        if (call.group == static_cast<int>(g))
          all.emplace_back(static_cast<int>(i), &call);
    return all;
  }

  void compare_inner(int a, int b, size_t g) const {
    const auto ours = inner_calls(a, g), theirs = inner_calls(b, g);
    for (size_t k = 0; k < std::max(ours.size(), theirs.size()); ++k) {
      if (k < ours.size() && k < theirs.size() && *ours[k].second == *theirs[k].second)
        continue;
      const bool here = k < theirs.size();
      refuse_role(schedule_, here ? b : a, (here ? theirs : ours)[k].first,
                  text("R4: makes call ", k, " inside blocks in group ",
                       schedule_.groups[g].name, ", where role ", here ? a : b,
                       " has another or none"));
    }
  }

  bool is_done(size_t role, int index) const {
    if (static_cast<size_t>(index) >= begun_[role]) return false;
    const int ordinal = ordinal_[role][index];
    if (ordinal == 0) return true;
    return missing_peer(role, action(role, index).lane, ordinal) == kNone;
  }

  int missing_peer(size_t role, int lane, int ordinal) const {
    for (int peer : peers_[role][lane])
      if (arrived_[peer][lane] < ordinal) return peer;
    return kNone;
  }

  // What the next action of a role waits for.
  int unmet_wait(size_t role) const {
    const Action& next = action(role, static_cast<int>(begun_[role]));
    for (int wait : next.waits)
      if (!is_done(role, wait)) return wait;
    return one_at_a_time_ ? unfinished_exchange(role, next) : kNone;
  }

  // An action of the exchange before, if the next one is another.
  int unfinished_exchange(size_t role, const Action& next) const {
    const int first = exchange_[role];
    if (first == kNone || (!is_call(role, next) && next.calls.empty())) return kNone;
    const int batch = action(role, first).batch;
    if (batch != kNone && next.batch == batch) return kNone;
    for (int i = first;
         i == first || (batch != kNone && action(role, i).batch == batch); ++i)
      if (!is_done(role, i)) return i;
    return kNone;
  }

  void begin_exchange(size_t role, int index) {
    const int batch = action(role, index).batch;
    const int last = exchange_[role];
    if (batch == kNone || last == kNone || action(role, last).batch != batch)
      exchange_[role] = index;
  }

  // Which actions an action waits for inside its block.
  int missing_inside(size_t role) const {
    for (const auto& call : action(role, static_cast<int>(begun_[role])).calls)
      for (int peer : inner_peers_[role][call.group])
        if (inner_[peer][call.group] < inner_[role][call.group]) return peer;
    return kNone;
  }

  bool advance(size_t role) {
    const auto& actions = schedule_.roles[role].actions;
    const size_t from = begun_[role];
    const bool was_in = entered_[role];
    while (begun_[role] < actions.size() && unmet_wait(role) == kNone) {
      const Action& next = actions[begun_[role]];
      if (!entered_[role])
        for (const auto& call : next.calls) ++inner_[role][call.group];
      entered_[role] = !next.calls.empty();
      if (missing_inside(role) != kNone) break;
      entered_[role] = false;
      ++begun_[role];
      if (!is_call(role, next)) continue;
      begin_exchange(role, static_cast<int>(begun_[role]) - 1);
      ++arrived_[role][next.lane];
    }
    return begun_[role] > from || entered_[role] != was_in;
  }

  [[noreturn]] void refuse_deadlock(size_t role) const {
    const int stuck = static_cast<int>(begun_[role]);
    const int wait = unmet_wait(role);
    const int peer = wait == kNone ? missing_inside(role)
                                   : missing_peer(role, action(role, wait).lane,
                                                  ordinal_[role][wait]);
    const Role& other = schedule_.roles[peer];
    const bool at_end = begun_[peer] >= other.actions.size();
    refuse_role(
        schedule_, static_cast<int>(role), stuck,
        text(
            "R6: waits for ever ",
            wait == kNone ? std::string("inside its block") : text("for action ", wait),
            ", in which role ", peer, " (ranks ", ranks_text(other.ranks),
            ") never joins: it is ",
            at_end ? std::string("at its end")
                   : text("stuck at ",
                          action_text(other, static_cast<int>(begun_[peer])))));
  }

  const Schedule& schedule_;
  bool one_at_a_time_;
  size_t lanes_, roles_;
  std::vector<std::vector<std::vector<int>>> calls_;  // by role, lane: actions
  std::vector<std::vector<int>> ordinal_;  // by role, action: which call; 0: none
  RolesMet peers_, inner_peers_;           // by role, lane; by role, group
  std::vector<size_t> begun_;              // by role: actions
  std::vector<std::vector<int>> arrived_;  // by role, lane: calls
  std::vector<std::vector<int>> inner_;    // by role, group: calls inside blocks
  std::vector<bool> entered_;              // by role: it is in the next action's block
  std::vector<int> exchange_;  // by role: first action of the one begun last
};

}  // namespace

void check_collectives(const Schedule& schedule, const CheckOptions& options) {
  CallOrder order(schedule, options.one_exchange_at_a_time);
  order.check_equal();
  order.check_no_deadlock();
}

}  // namespace cohort
