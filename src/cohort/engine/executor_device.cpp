// SPDX-License-Identifier: Apache-2.0
// A step whose blocks compute on a device, while the host sums and updates.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/cuda/kernel_search.h"
#include "cohort/engine/executor.h"

namespace cohort {
namespace {

constexpr int kWarmSteps = 2;  // before a capture: LibTorch chooses its kernels

bool is_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kRecompute ||
         kind == ActionKind::kBackward;
}

}  // namespace

void Executor::set_up_device() {
  if (schedule_.computes_in != Buffer::Place::kDevice)
    throw BugError("[engine] the schedule plans no memory of a device");
  device_ = std::make_unique<DeviceSide>(chain_, state_, gradients_, schedule_,
                                         options_, role_.slices);
  cut_segments();
}

bool Executor::finishes(const Action& action, int bucket) const {
  const bool whole =
      !gradients_.adds_where_born(bucket) || action.slice + 1 == role_.slices;
  return action.kind == ActionKind::kBackward && last_to_add_[bucket] == action.block &&
         state_.buckets()[bucket].trained && whole;
}

// At shard level 3 parameters come and go between any two actions.
void Executor::cut_segments() {
  const int last = static_cast<int>(chain_.blocks.size()) - 1;
  Segment open;
  for (size_t i = 0; i < role_.actions.size(); ++i) {
    const Action& action = role_.actions[i];
    if (!is_compute(action.kind)) continue;
    open.actions.push_back(static_cast<int>(i));
    open.slice = action.slice;
    open.ends_forward = action.kind == ActionKind::kForward && action.block == last;
    for (const int bucket : action.buckets) {
      if (!state_.buckets()[bucket].trained) continue;
      if (action.kind == ActionKind::kBackward) open.touches.push_back(bucket);
      if (finishes(action, bucket)) open.finishes.push_back(bucket);
    }
    const bool slice_ends = action.kind == ActionKind::kBackward && action.block == 0;
    if (open.ends_forward || !open.finishes.empty() || slice_ends ||
        schedule_.shard == 3)
      segments_.push_back(std::exchange(open, {}));
  }
}

GradientSums::Leaf Executor::leaf(int bucket, int slice) const {
  return device_ ? device_->leaf(bucket, slice) : gradients_.leaf(bucket, slice);
}

Batch Executor::on_device(const Batch& batch) const {
  if (!device_) return batch;
  DeviceBatch samples(device_->lane(), schedule_.precision.compute, options_.seed, 1);
  samples.load(0, step_, batch);
  return {samples.slice(0).input, samples.slice(0).target, batch.ids};
}

void Executor::start_device_step(const StepInput& input) {
  launched_ = 0;
  loss_settled_ = false;
  slot_taken_.assign(schedule_.buckets.size(), false);
  device_->set_seed(seed_scale());
  for (int slice = 0; slice < role_.slices; ++slice) {
    const Batch batch = input.batch(first_slice_ + slice);
    sums_.draw(input.sample_key, batch.ids);
    device_->set_count(slice, 0);
    device_->lane().run([&] { device_->batch().load(slice, input.step, batch); });
  }
  const bool usual = device_->batch().is_usual();
  replays_ = usual && options_.capture && device_->lane().can_capture() &&
             schedule_.shard < 3 && warm_steps_ >= kWarmSteps;
  if (usual) ++warm_steps_;
}

// What action `index` needs, and behind it all that finds memory for its gradients.
void Executor::launch_ahead(int index, const StepInput& input) {
  while (launched_ < segments_.size()) {
    Segment& segment = segments_[launched_];
    const bool due = segment.actions.front() <= index;
    if (!due && (schedule_.shard == 3 || !may_launch(segment))) return;
    if (due) {
      for (const int action : segment.actions)
        for (const int earlier : role_.actions[action].waits)
          if (earlier < index) finish_action(role_, earlier);
      for (const int bucket : segment.touches) device_->settle(bucket);
    }
    launch(segment, input);
    ++launched_;
  }
}

bool Executor::may_launch(const Segment& segment) const {
  return std::all_of(segment.touches.begin(), segment.touches.end(), [&](int bucket) {
    return device_->is_settled(bucket) && !slot_taken_[schedule_.buckets[bucket].slot];
  });
}

void Executor::launch(Segment& segment, const StepInput& input) {
  device_->lane().join_uploads();
  // A rank that talks to nobody has no reduction to wait for before it uses a slot
  // again.
  if (uploads_directly()) device_->lane().join_downloads();
  if (replays_) {
    if (segment.graph == kNone) capture(segment, input);
    device_->lane().replay(segment.graph);
    for (const auto& statistic : segment.statistics) statistics_.push_back(statistic);
    if (segment.ends_forward) device_->set_count(segment.slice, segment.count);
  } else {
    const NoKernelSearch rare(!device_->batch().is_usual());
    device_->lane().run([&] { compute(segment, input); });
  }
  device_->download(segment);
  if (schedule_.shard < 2) return;
  for (const int bucket : segment.finishes)
    slot_taken_[schedule_.buckets[bucket].slot] = true;
}

void Executor::compute(const Segment& segment, const StepInput& input) {
  for (const int action : segment.actions) compute(role_.actions[action], input);
}

// Statistics and counts of a graph are the same tensors and numbers at every replay.
void Executor::capture(Segment& segment, const StepInput& input) {
  const size_t before = statistics_.size();
  segment.graph = device_->lane().capture([&] { compute(segment, input); });
  segment.count = device_->count(segment.slice);
  const auto fresh = statistics_.begin() + static_cast<int64_t>(before);
  segment.statistics.assign(fresh, statistics_.end());
  statistics_.erase(fresh, statistics_.end());
}

void Executor::settle_loss() {
  if (!runs_ahead() || std::exchange(loss_settled_, true)) return;
  const auto [sum, count] = device_->settle_loss();
  sums_.add_loss(sum, count);
}

void Executor::settle_all() {
  settle_loss();
  if (device_) device_->settle_all();
}

int64_t Executor::device_peak_bytes() const {
  return device_ ? device_->lane().peak_bytes() : 0;
}

}  // namespace cohort
