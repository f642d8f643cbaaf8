// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/interpreter.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/timed.h"
#include "cohort/step/derive.h"

namespace cohort {
namespace {

std::vector<bool> collectives(const Schedule& schedule, const Role& role) {
  std::vector<bool> all;
  for (const auto& action : role.actions)
    all.push_back(schedule.group_of(action.lane) != nullptr);
  return all;
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, const Role& role, bool moves_alone)
    : role_(role),
      moves_alone_(moves_alone),
      lanes_count_(schedule.lanes()),
      inputs_in_lane_(inputs_in_lane(role.actions)),
      is_staged_(!schedule.stages.empty()),
      is_collective_(collectives(schedule, role)),
      waits_(role.actions.size(), 0) {}

double Interpreter::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_)
      .count();
}

void Interpreter::begin() {
  pending_.clear();
  pending_.resize(role_.actions.size());
  lanes_.assign(lanes_count_, {});
  late_.assign(lanes_count_, {});
  lane_ends_.assign(lanes_count_, 0);
  times_.assign(role_.actions.size(), {});
  waited_ = 0;
  begun_ = std::chrono::steady_clock::now();
}

void Interpreter::run(Performer& performer, bool in_turn) {
  next_ = 0;
  run_to(static_cast<int>(role_.actions.size()), performer, in_turn);
}

void Interpreter::run_to(int end, Performer& performer, bool in_turn) {
  performer_ = &performer;
  in_turn_ = in_turn;
  if (next_ == 0) begin();
  for (; next_ < end; ++next_) {
    const int i = next_;
    const Action& action = role_.actions[i];
    // At a Commit all that the step changes is changed.
    const bool ends = action.kind == ActionKind::kCommit;
    if (!ends) performer.reach(i);
    if (action.lane != kComputeLane && performer.comes_late(action.lane)) {
      late_[action.lane].push_back(i);
      continue;
    }
    finish_inputs(i);
    if (ends) performer.reach(i);
    start(i);
  }
  if (next_ == static_cast<int>(role_.actions.size())) this->end();
}

void Interpreter::end() {
  start_late_sends();
  for (int lane = 0; lane < lanes_count_; ++lane) {
    if (!late_[lane].empty()) start_late(lane, late_[lane].back());
    finish_lane(lane);
  }
  next_ = 0;
}

// All that it needs is there.
void Interpreter::start(int index) {
  const Action& action = role_.actions[index];
  const bool sends = action.kind == ActionKind::kSend;
  if (action.lane != kComputeLane && !sends) start_late_sends();
  times_[index].begin = now();
  pending_[index] = performer_->perform(index);
  // The receiver may have something to send first: a Send waits for no other.
  if (in_turn_ && !sends) pending_[index].finish();
  performer_->done(index);
  times_[index].end = now();
  // Some collectives have met when they are started.
  if (is_staged_ && is_collective_[index])
    waits_[index] += times_[index].end - times_[index].begin;
  if (action.lane != kComputeLane) lanes_[action.lane].push_back(index);
  drop_sent(action.lane);
}

// Up to that action, which is waited for.
void Interpreter::start_late(int lane, int last) {
  auto& late = late_[lane];
  while (!late.empty() && late.front() <= last) {
    const int index = late.front();
    late.pop_front();
    finish_inputs(index);
    start(index);
  }
}

// Before anything is waited for, which communication may do where it starts: a peer may
// need what is sent to do its part. No later start is safe.
void Interpreter::start_late_sends() {
  if (std::exchange(starts_sends_, true)) return;
  for (int lane = 0; lane < lanes_count_; ++lane)
    if (!late_[lane].empty() &&
        role_.actions[late_[lane].front()].kind == ActionKind::kSend)
      start_late(lane, late_[lane].back());
  starts_sends_ = false;
}

void Interpreter::abandon() {
  pending_.clear();
  late_.assign(lanes_count_, {});
  starts_sends_ = false;
  next_ = 0;
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

// Communication is started ahead of its lane: what it reads of it must be there, too,
// and what it overwrites must have been used.
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
  start_late(number, index);
  auto& lane = lanes_[number];
  if (lane.empty() || lane.front() > index) return;
  start_late_sends();  // this lane's, too
  const auto end = std::upper_bound(lane.begin(), lane.end(), index);
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
  double sum = 0;
  for (size_t i = 0; i < waits_.size(); ++i) {
    const Action& action = role_.actions[i];
    const double waited = std::exchange(waits_[i], 0);
    sum += waited;
    if (action.lane != kComputeLane)
      all.push_back({text(name_of(action.kind), what(action)), waited});
  }
  // Stages that take equally long wait equally long in all, each elsewhere.
  if (is_staged_)
    return {{"the borders of its stage, which may have more to do than others", sum}};
  return all;
}

}  // namespace cohort
