// SPDX-License-Identifier: Apache-2.0
// What an executor exchanges with its peers: gradients one way, parameters the other.
#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/timed.h"

namespace cohort {

using SteadyClock = std::chrono::steady_clock;

// Communication is started ahead of its lane: what it reads of it must be there, too.
void Executor::finish_inputs(const Role& role, size_t index) {
  for (int earlier : role.actions[index].waits) finish_action(role, earlier);
  // An update that is its reduction comes behind the loss, for its lane is in order.
  if (evaluating_ || role.actions[index].kind == ActionKind::kReduceUpdate) return;
  for (int earlier : inputs_in_lane_[index]) finish_action(role, earlier);
}

PendingWork Executor::reduce(const Action& action) {
  const int bucket = action.buckets[0];
  const bool updates = action.kind == ActionKind::kReduceUpdate;
  if (!options_.communicate) {
    if (updates) update(bucket);  // with what this rank has
    return {};
  }
  Timed timed(split_.wait);
  if (bucket == kLossBucket) {
    settle_loss();
    return {sums_.reduce(), nullptr};
  }
  if (device_) device_->settle(bucket);
  const bool replicas =
      action.kind == ActionKind::kReduce && groups_.replicate != nullptr;
  if (replicas) return gradients_.reduce_replicas(bucket);
  PendingWork work =
      gradients_.reduce(bucket, action.slice, fused_ ? &visitor_ : nullptr);
  if (!updates || !device_ || schedule_.shard == 3) return work;
  return {std::move(work.work), [this, bucket, then = std::move(work.then)] {
            if (then) then();
            device_->upload(bucket);
          }};
}

PendingWork Executor::mirror(const Action& action) {
  if (!options_.communicate) return {};
  Timed timed(split_.wait);
  return gradients_.mirror(action.buckets[0]);
}

PendingWork Executor::gather(const Action& action) {
  const int bucket = action.buckets[0];
  BucketState& state = state_.buckets()[bucket];
  Timed timed(split_.wait);
  if (uploads_directly()) {
    device_->acquire(bucket, state.travels);
    return {};
  }
  if (schedule_.shard == 3) {
    state_.acquire(bucket);
    return {move_shares(state), [this, bucket] {
              if (device_) device_->acquire(bucket, state_.buckets()[bucket].whole);
            }};
  }
  const auto uploads = [this, bucket] {
    if (device_ && !skipped_) device_->upload(bucket);
  };
  // One copy at a time: the lane would not move the next before this one anyway.
  if (const auto& lane = lanes_[action.lane]; !lane.empty())
    finish_action(role_, lane.back());
  const Tensor share = state.whole.narrow(0, state.begin, state.count).clone();
  return {groups_.shard->all_gather(state.whole, share),
          [share, uploads] { uploads(); }};
}

// Shares that lie in one memory only have to be there: their owners come when they have
// updated them. None is updated before all have used it, for its gradient is summed
// first.
Work Executor::move_shares(BucketState& state) {
  if (state.joined.defined())
    return dynamic_cast<PeerMemory&>(*groups_.shard).meet(state.numel, [] {});
  return groups_.shard->all_gather(state.whole, state.travels);
}

void Executor::free_parameters(int bucket) {
  if (device_) device_->release(bucket);
  if (!uploads_directly()) state_.release(bucket);
}

std::vector<ActionWait> Executor::take_waits() {
  const auto what = [](const Action& action) -> std::string {
    if (action.buckets.empty()) return "";
    if (action.buckets[0] == kLossBucket) return " of the loss";
    return text(" of bucket ", action.buckets[0]);
  };
  std::vector<ActionWait> all;
  for (size_t i = 0; i < waits_.size(); ++i)
    if (const Action& action = role_.actions[i]; action.lane != kComputeLane)
      all.push_back(
          {text(name_of(action.kind), what(action)), std::exchange(waits_[i], 0)});
  return all;
}

std::chrono::duration<double> Executor::time_communication() {
  comm_.barrier().wait();
  const GradientSums::Visitor nothing = [](int, int64_t, int64_t, float*) {};
  const auto start = SteadyClock::now();
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].trained)
      gradients_
          .reduce(i, schedule_.shard >= 2 ? 0 : kNone, fused_ ? &nothing : nullptr)
          .finish();
  return SteadyClock::now() - start;
}

}  // namespace cohort
