// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/simulator.h"

#include <algorithm>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/action_costs.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/roles_met.h"

namespace cohort {
namespace {

constexpr double kUnknown = -1;

// A call of a role in a group or on a link, from its issue to its end.
struct LaneCall {
  int action = 0;
  double asked = 0;          // when what it waits for is done
  double needed = kUnknown;  // when the rank's own thread waits for it
  double end = kUnknown;
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const CostTable& costs)
      : schedule_(schedule), costs_(schedule, costs), roles_(schedule.roles.size()) {
    const size_t lanes = schedule.channels.size();
    const auto met = roles_met_in_lanes(schedule);
    const auto inner_met = roles_met_in_groups(schedule);
    for (int lane = 0; lane < schedule.lanes(); ++lane)
      hidden_.push_back(costs_.hidden(lane));
    for (size_t r = 0; r < roles_.size(); ++r) {
      roles_[r].times.assign(schedule.roles[r].actions.size(), {kUnknown, kUnknown});
      roles_[r].ordinal.assign(schedule.roles[r].actions.size(), 0);
      roles_[r].free.assign(lanes, 0);
      roles_[r].calls.resize(lanes);
      roles_[r].resolved.assign(lanes, 0);
      roles_[r].peers = met[r];
      roles_[r].inner_peers = inner_met[r];
      roles_[r].came.resize(schedule.groups.size());
      roles_[r].met.assign(schedule.groups.size(), 0);
    }
  }

  StepTimes run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < roles_.size(); ++r) moved |= advance(r);
      for (size_t l = 0; l < schedule_.channels.size(); ++l) moved |= resolve(l, false);
      // Nobody waits for it yet, and all have come to it: it is not held up.
      for (size_t l = 0; !moved && l < schedule_.channels.size(); ++l)
        moved = resolve(l, true);
    }
    StepTimes times;
    for (size_t r = 0; r < roles_.size(); ++r) {
      if (roles_[r].next < roles_[r].times.size())
        throw ConfigError(
            text("[step.simulate] role ", r, ", ",
                 action_text(schedule_.roles[r], static_cast<int>(roles_[r].next)),
                 ": waits for ever; legal: what the checker accepts"));
      times.push_back(std::move(roles_[r].times));
    }
    return times;
  }

 private:
  struct State {
    size_t next = 0;  // the first action that has not begun
    std::vector<ActionTime> times;
    std::vector<size_t> ordinal;               // by action: its place in calls
    std::vector<double> free;                  // by lane: when its last action is done
    std::vector<std::vector<LaneCall>> calls;  // by lane
    std::vector<size_t> resolved;              // by lane: calls with an end
    std::vector<std::set<int>> peers;          // by lane: roles it meets
    // Calls inside blocks.
    std::vector<std::set<int>> inner_peers;  // by group: roles it meets
    std::vector<std::vector<double>> came;   // by group: when it came to each call
    std::vector<size_t> met;                 // by group: calls that are done
    size_t call = 0;                         // number within the action it is in
    double began = kUnknown;                 // that action, if it is in one
    double now = 0;                          // how far it is there
  };

  bool hidden(size_t lane) const { return hidden_[lane]; }

  // Begins actions until one waits for a call whose end is not known yet.
  bool advance(size_t r) {
    State& state = roles_[r];
    const auto& actions = schedule_.roles[r].actions;
    const size_t from = state.next;
    moved_inside_ = false;
    for (; state.next < actions.size(); ++state.next)
      if (!begin(state, actions[state.next])) break;
    return state.next > from || moved_inside_;
  }

  bool begin(State& state, const Action& action) {
    if (state.began != kUnknown) return go_on(state, action);
    double ready = 0;
    bool known = true;
    for (int wait : action.waits) {
      if (state.times[wait].end != kUnknown) {
        ready = std::max(ready, state.times[wait].end);
        continue;
      }
      const Action& awaited = schedule_.roles[&state - roles_.data()].actions[wait];
      if (awaited.lane == action.lane) continue;  // first in, first out
      known = false;
      need(state, awaited, wait);
    }
    if (!known) return false;
    if (!state.peers[action.lane].empty()) {
      auto& calls = state.calls[action.lane];
      state.ordinal[state.next] = calls.size();
      calls.push_back({.action = static_cast<int>(state.next), .asked = ready});
      return true;
    }
    state.began = state.now = std::max(ready, state.free[action.lane]);
    state.call = 0;
    if (!action.calls.empty()) come(state, action);
    return go_on(state, action);
  }

  // Computes until the next call inside the block: each ends an equal part of it.
  void come(State& state, const Action& action) {
    state.now += costs_.seconds(action) / static_cast<double>(action.calls.size());
    state.came[action.calls[state.call].group].push_back(state.now);
    moved_inside_ = true;
  }

  // As far as peers have come to the same calls; true: to the end of the action.
  bool go_on(State& state, const Action& action) {
    while (state.call < action.calls.size()) {
      const InnerCall& call = action.calls[state.call];
      const size_t k = state.met[call.group];
      for (const int peer : state.inner_peers[call.group]) {
        const auto& came = roles_[peer].came[call.group];
        if (k >= came.size()) return false;
        state.now = std::max(state.now, came[k]);
      }
      state.now += costs_.seconds(call);
      ++state.met[call.group];
      if (++state.call < action.calls.size()) come(state, action);
    }
    if (action.calls.empty()) state.now += costs_.seconds(action);
    state.times[state.next] = {state.began, state.now};
    state.free[action.lane] = state.now;
    state.began = kUnknown;
    return true;
  }

  void need(State& state, const Action& awaited, int wait) {
    auto& calls = state.calls[awaited.lane];
    for (size_t k = state.resolved[awaited.lane]; k <= state.ordinal[wait]; ++k)
      if (calls[k].needed == kUnknown) calls[k].needed = state.free[kComputeLane];
  }

  // Gives the next call of a lane its times where all its ranks have come to it.
  bool resolve(size_t lane, bool unneeded) {
    bool moved = false;
    for (auto& state : roles_) {
      while (true) {
        const double start = start_of(state, lane, unneeded);
        if (start == kUnknown) break;
        finish(state, lane, start);
        moved = true;
        if (unneeded) return true;
      }
    }
    return moved;
  }

  double start_of(const State& state, size_t lane, bool unneeded) const {
    const size_t k = state.resolved[lane];
    if (k >= state.calls[lane].size()) return kUnknown;
    double start = 0;
    for (const int peer : state.peers[lane]) {
      const State& other = roles_[peer];
      if (k >= other.calls[lane].size()) return kUnknown;
      if (k > 0 && other.calls[lane][k - 1].end == kUnknown) return kUnknown;
      const LaneCall& call = other.calls[lane][k];
      if (!hidden(lane) && call.needed == kUnknown && !unneeded) return kUnknown;
      start = std::max({start, call.asked, k > 0 ? other.calls[lane][k - 1].end : 0});
      if (!hidden(lane)) start = std::max(start, call.needed);
    }
    return start;
  }

  void finish(State& state, size_t lane, double start) {
    LaneCall& call = state.calls[lane][state.resolved[lane]++];
    const auto& actions = schedule_.roles[&state - roles_.data()].actions;
    call.end = start + costs_.seconds(actions[call.action]);
    state.times[call.action] = {start, call.end};
    if (!hidden(lane))
      state.free[kComputeLane] = std::max(state.free[kComputeLane], call.end);
  }

  const Schedule& schedule_;
  const ActionCosts costs_;
  std::vector<State> roles_;
  std::vector<bool> hidden_;   // by lane
  bool moved_inside_ = false;  // a role came to a call inside a block
};

// Time in which any of some spans runs, each with its overlaps counted once.
std::vector<ActionTime> joined(std::vector<ActionTime> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<ActionTime> result;
  for (const auto& span : spans) {
    if (span.end <= span.begin) continue;
    if (!result.empty() && span.begin <= result.back().end)
      result.back().end = std::max(result.back().end, span.end);
    else
      result.push_back(span);
  }
  return result;
}

double total(const std::vector<ActionTime>& spans) {
  double sum = 0;
  for (const auto& span : spans) sum += span.end - span.begin;
  return sum;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const CostTable& costs) {
  Simulation result{.times = Simulator(schedule, costs).run()};
  result.step = step_seconds(result.times);
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    result.roles.push_back(use_of(schedule.roles[r], result.times[r]));
    result.memory.push_back(
        memory_over_time(schedule, schedule.roles[r], result.times[r]));
  }
  return result;
}

double step_seconds(const StepTimes& times) {
  double end = 0;
  for (const auto& role : times)
    for (const auto& time : role) end = std::max(end, time.end);
  return end;
}

RoleUse use_of(const Role& role, const std::vector<ActionTime>& times) {
  std::vector<ActionTime> compute, communication;
  for (size_t i = 0; i < role.actions.size(); ++i)
    (role.actions[i].lane == kComputeLane ? compute : communication)
        .push_back(times[i]);
  compute = joined(std::move(compute));
  communication = joined(std::move(communication));
  RoleUse use{.compute = total(compute), .communication = total(communication)};
  size_t c = 0;
  for (const auto& span : communication) {
    while (c < compute.size() && compute[c].end <= span.begin) ++c;
    for (size_t k = c; k < compute.size() && compute[k].begin < span.end; ++k)
      use.hidden +=
          std::min(span.end, compute[k].end) - std::max(span.begin, compute[k].begin);
  }
  return use;
}

std::vector<MemoryPoint> memory_over_time(const Schedule& schedule, const Role& role,
                                          const std::vector<ActionTime>& times) {
  const auto& actions = role.actions;
  const ValueMemory memory = value_memory(role);
  std::vector<double> freed(actions.size(), kUnknown);  // first begin of what waited
  std::map<int, size_t> last;
  const auto waited = [&](size_t earlier, size_t i) {
    if (freed[earlier] == kUnknown || times[i].begin < freed[earlier])
      freed[earlier] = times[i].begin;
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    for (int wait : actions[i].waits) waited(static_cast<size_t>(wait), i);
    const auto before = last.find(actions[i].lane);
    if (before != last.end()) waited(before->second, i);
    last[actions[i].lane] = i;
  }
  std::vector<MemoryPoint> changes = {{0, kept_bytes(schedule, role)}};
  for (size_t i = 0; i < actions.size(); ++i) {
    changes.push_back({times[i].begin, memory.takes[i] + actions[i].scratch});
    changes.push_back({times[i].end, -actions[i].scratch});
    changes.push_back(
        {freed[i] == kUnknown ? times[i].end : freed[i], -memory.frees[i]});
  }
  std::erase_if(changes, [](const MemoryPoint& p) { return p.bytes == 0; });
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return a.time != b.time ? a.time < b.time : a.bytes < b.bytes;
  });
  std::vector<MemoryPoint> curve;
  int64_t held = 0;
  for (const auto& change : changes) {
    held += change.bytes;
    if (!curve.empty() && curve.back().time == change.time)
      curve.back().bytes = held;
    else
      curve.push_back({change.time, held});
  }
  return curve;
}

}  // namespace cohort
