// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/transfers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/engine/timed.h"
#include "cohort/step/buckets.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

// Places that have a tied bucket, by their number among them: as their blocks follow
// one another.
std::vector<int> order_of_uses(const Schedule& schedule, int bucket) {
  const auto places = places_of(schedule, schedule.buckets[bucket]);
  std::vector<int> order;
  for (const int block : schedule.buckets[bucket].blocks) {
    const auto place =
        std::find(places.begin(), places.end(), schedule.place_of_block(block));
    const int number = static_cast<int>(place - places.begin());
    if (std::find(order.begin(), order.end(), number) == order.end())
      order.push_back(number);
  }
  return order;
}

}  // namespace

Transfers::Transfers(const Schedule& schedule, const RankChannels& channels,
                     CudaLane* lane, FlatState& state, GradientSums& gradients,
                     ComputeSide& compute, StepInFlight& step)
    : schedule_(schedule),
      channels_(channels),
      groups_(channels.groups()),
      lane_(lane),
      state_(state),
      gradients_(gradients),
      compute_(compute),
      step_(step),
      links_(lane ? lane->device() : at::Device(at::kCPU)) {
  if (lane && lane->device().is_cuda() && !schedule.stages.empty())
    channels.connect(lane->device());
}

PendingWork Transfers::reduce(const Action& action,
                              const GradientSums::Visitor* visitor) {
  Timed timed(step_.split.wait);
  const int bucket = action.buckets[0];
  if (bucket == kLossBucket) return {step_.sums.reduce(), nullptr};
  if (const Group* group = schedule_.group_of(action.lane);
      group && !group->places.empty()) {
    gradients_.reduce_tied(bucket, channels_.tied(action.lane),
                           order_of_uses(schedule_, bucket));
    return {};
  }
  const bool replicas =
      action.kind == ActionKind::kReduce && groups_.replicate != nullptr;
  if (replicas) return gradients_.reduce_replicas(bucket);
  return gradients_.reduce(bucket, action.slice, visitor);
}

PendingWork Transfers::mirror(const Action& action) {
  Timed timed(step_.split.wait);
  return gradients_.mirror(action.buckets[0], *groups_.world);
}

PendingWork Transfers::gather(const Action& action, Interpreter& interpreter) {
  const int bucket = action.buckets[0];
  BucketState& state = state_.buckets()[bucket];
  Timed timed(step_.split.wait);
  if (schedule_.shard == 3) {
    state_.acquire(bucket);
    return {move_shards(state), nullptr};
  }
  // One copy at a time: the lane would not move the next before this one anyway.
  interpreter.finish_lane(action.lane);
  const Tensor shard = state.whole.narrow(0, state.begin, state.count).clone();
  return {groups_.shard->all_gather(state.whole, shard), [shard] {}};
}

// Shards that lie in one memory only have to be there: their owners come when they have
// updated them. None is updated before all have used it, for its gradient is summed
// first.
Work Transfers::move_shards(BucketState& state) {
  if (state.joined.defined())
    return dynamic_cast<PeerMemory&>(*groups_.shard).work_jointly(state.numel, [] {});
  if (!state.travels_from_host)
    return groups_.shard->all_gather(state.whole, state.travels);
  // Communication takes what is in the device's own memory.
  const c10::NoGradGuard no_grad;
  const Tensor shard = state.whole.narrow(0, state.begin, state.count);
  shard.copy_(state.travels, /*non_blocking=*/true);
  if (groups_.shard->size() == 1) return {};
  return groups_.shard->all_gather(state.whole, shard);
}

void Transfers::free_parameters(int bucket) { state_.release(bucket); }

PendingWork Transfers::send(const Action& action) {
  Timed timed(step_.split.wait);
  const Value& value = action.reads[0].value;
  if (!is_made_anew(value.what)) return send_sum(action);
  const int64_t rows = compute_.rows(value.slice);
  if (rows == 0) return {};
  BlockRunner& blocks = compute_.blocks();
  const Values& values = value.what == What::kAct
                             ? blocks.output(value.of, value.slice)
                             : blocks.gradient(value.of, value.slice);
  auto [work, copied] = links_.send(channels_.link(action.lane), value, rows, values);
  if (copied) {
    blocks.drop_sent(value.of, value.slice);
    return std::move(work);
  }
  return {std::move(work.work), [&blocks, value, then = std::move(work.then)] {
            then();
            blocks.drop_sent(value.of, value.slice);
          }};
}

Tensor Transfers::sent_of_bucket(const Action& action) const {
  if (is_made_anew(action.reads[0].value.what)) return {};
  return gradients_.sum(action.buckets[0]);
}

PendingWork Transfers::receive(const Action& action) {
  Timed timed(step_.split.wait);
  const Value& value = action.writes[0].value;
  if (!is_made_anew(value.what)) return receive_sum(action);
  const int64_t rows = compute_.rows(value.slice);
  if (rows == 0) return {};
  BlockRunner& blocks = compute_.blocks();
  return links_.receive(channels_.link(action.lane), value, rows,
                        [this, &blocks, value](Values received) {
                          // It was allocated in the lane of its link.
                          for (const auto& tensor : received)
                            if (lane_ && tensor.defined()) lane_->takes(tensor);
                          Values& home = value.what == What::kAct
                                             ? blocks.output(value.of, value.slice)
                                             : blocks.gradient(value.of, value.slice);
                          home = std::move(received);
                        });
}

PendingWork Transfers::send_sum(const Action& action) {
  const auto [pair, peer] = channels_.link(action.lane);
  const Transfer transfer{peer, sent_of_bucket(action).to(sum_type(schedule_))};
  return {pair->exchange(std::span(&transfer, 1), {}), [kept = transfer.tensor] {}};
}

PendingWork Transfers::receive_sum(const Action& action) {
  const auto [pair, peer] = channels_.link(action.lane);
  const int bucket = action.buckets[0];
  const Transfer transfer{peer, gradients_.mirrored_sum(bucket)};
  return {pair->exchange({}, std::span(&transfer, 1)),
          [this, bucket] { gradients_.take_mirrored(bucket); }};
}

}  // namespace cohort
