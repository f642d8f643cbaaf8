// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/interpreter.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/timed.h"
#include "cohort/step/derive.h"

namespace cohort {
namespace {

// By action: it is a communication that every rank of the world has in its list. Along
// a pipeline links and other groups are not.
std::vector<bool> common_calls(const Schedule& schedule, const Role& role) {
  std::vector<bool> common;
  for (const auto& action : role.actions) {
    const Group* const group = schedule.group_of(action.lane);
    common.push_back(schedule.stages.empty()
                         ? action.lane != kComputeLane
                         : group && schedule.size_of(*group) == schedule.world());
  }
  return common;
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, const Role& role, bool moves_alone)
    : role_(role),
      moves_alone_(moves_alone),
      lanes_count_(schedule.lanes()),
      inputs_in_lane_(writers_in_lane(role.actions)),
      common_(common_calls(schedule, role)),
      waits_(role.actions.size(), 0) {}

double Interpreter::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_)
      .count();
}

void Interpreter::begin() {
  pending_.clear();
  pending_.resize(role_.actions.size());
  lanes_.assign(lanes_count_, {});
  lane_ends_.assign(lanes_count_, 0);
  times_.assign(role_.actions.size(), {});
  waited_ = 0;
  begun_ = std::chrono::steady_clock::now();
}

void Interpreter::run(Performer& performer, bool in_turn) {
  begin();
  for (int i = 0; i < static_cast<int>(role_.actions.size()); ++i) {
    // At a Commit all that the step changes is changed.
    const bool ends = role_.actions[i].kind == ActionKind::kCommit;
    if (!ends) performer.reach(i);
    finish_inputs(i);
    if (ends) performer.reach(i);
    times_[i].begin = now();
    pending_[i] = performer.perform(i);
    // Whoever receives may have something to send first: a Send waits for nobody.
    if (in_turn && role_.actions[i].kind != ActionKind::kSend) pending_[i].finish();
    performer.done(i);
    times_[i].end = now();
    if (role_.actions[i].lane != kComputeLane)
      lanes_[role_.actions[i].lane].push_back(i);
    drop_sent(role_.actions[i].lane);
  }
  for (int lane = 0; lane < lanes_count_; ++lane) finish_lane(lane);
}

// Nobody waits for a Send; what was received is dropped when the next one starts.
void Interpreter::drop_sent(int lane) {
  const auto is_sent = [&](int index) {
    return role_.actions[index].kind == ActionKind::kSend &&
           pending_[index].work.poll();
  };
  while (!lanes_[lane].empty() && is_sent(lanes_[lane].front()))
    finish(lanes_[lane].front());
}

// Communication is started ahead of its lane: what it reads of it must be there, too.
// An update that is its reduction comes behind the loss, for its lane is in order.
void Interpreter::finish_inputs(int index) {
  const Action& action = role_.actions[index];
  for (const int earlier : action.waits) finish(earlier);
  if (action.kind == ActionKind::kReduceUpdate) return;
  for (const int earlier : inputs_in_lane_[index]) finish(earlier);
}

// Waiting for a reduction also does this rank's share of it, and of a fused update.
void Interpreter::finish(int index) {
  const int number = role_.actions[index].lane;
  auto& lane = lanes_[number];
  const auto end = std::upper_bound(lane.begin(), lane.end(), index);
  if (end == lane.begin()) return;
  Timed timed(waited_);
  double current = now();
  for (auto it = lane.begin(); it != end; ++it) {
    const bool was_done = !pending_[*it].work.in_flight();
    pending_[*it].finish();
    const double turned = std::exchange(current, now());
    if (was_done) continue;
    waits_[*it] += current - turned;
    double& lane_end = lane_ends_[number];
    times_[*it] = {moves_alone_ ? std::max(times_[*it].begin, lane_end) : turned,
                   current};
    lane_end = current;
  }
  lane.erase(lane.begin(), end);
}

void Interpreter::finish_lane(int lane) {
  if (!lanes_[lane].empty()) finish(lanes_[lane].back());
}

std::vector<ActionWait> Interpreter::take_waits() {
  const auto what = [](const Action& action) -> std::string {
    if (action.buckets.empty()) return "";
    if (action.buckets[0] == kLossBucket) return " of the loss";
    return text(" of bucket ", action.buckets[0]);
  };
  std::vector<ActionWait> all;
  for (size_t i = 0; i < waits_.size(); ++i) {
    const Action& action = role_.actions[i];
    const double waited = std::exchange(waits_[i], 0);
    if (common_[i]) all.push_back({text(name_of(action.kind), what(action)), waited});
  }
  return all;
}

}  // namespace cohort
