// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_compute.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/kernel_search.h"
#include "cohort/engine/timed.h"

namespace cohort {
namespace {

constexpr int kWarmSteps = 2;  // before a capture: LibTorch chooses its kernels

bool is_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kRecompute ||
         kind == ActionKind::kBackward;
}

const Schedule& require_device(const Schedule& schedule) {
  if (schedule.computes_in != Buffer::Place::kDevice)
    throw BugError("[engine] the schedule plans no memory of a device");
  require_no_calls(schedule);
  return schedule;
}

}  // namespace

DeviceCompute::DeviceCompute(const Chain& chain, FlatState& state,
                             GradientSums& gradients, const Schedule& schedule,
                             const Role& role, int first_slice,
                             const ExecutorOptions& options, StepInFlight& step)
    : chain_(chain),
      schedule_(require_device(schedule)),
      role_(role),
      state_(state),
      gradients_(gradients),
      options_(options),
      step_(step),
      first_slice_(first_slice),
      recomputed_(recomputed_in(role)),
      last_to_add_(last_adders_of(chain, schedule)),
      side_(chain, state, gradients, schedule, options, role.slices),
      blocks_(chain, *this,
              {.seed = options.seed, .first_slice = first_slice, .may_wait = false}) {
  cut_segments();
}

bool DeviceCompute::finishes(const Action& action, int bucket) const {
  const bool whole =
      !gradients_.adds_where_born(bucket) || action.slice + 1 == role_.slices;
  return action.kind == ActionKind::kBackward && last_to_add_[bucket] == action.block &&
         state_.buckets()[bucket].trained && whole;
}

// At shard level 3 parameters come and go between any two actions.
void DeviceCompute::cut_segments() {
  const int last = static_cast<int>(schedule_.blocks.size()) - 1;
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

void DeviceCompute::begin_step(const StepInput& input, const Tensor&) {
  launched_ = 0;
  loss_settled_ = false;
  slot_taken_.assign(schedule_.buckets.size(), false);
  blocks_.begin(input.step, Phase::kTrain);
  batches_.assign(role_.slices, {});
  side_.set_seed(step_.seed_scale);
  for (int slice = 0; slice < role_.slices; ++slice) {
    const Batch given = input.batch(first_slice_ + slice);
    step_.sums.draw(input.sample_key, given.ids);
    side_.set_count(slice, 0);
    side_.lane().run([&] { side_.batch().load(slice, input.step, given); });
    batches_[slice] = side_.batch().slice(slice).samples;
  }
  const bool usual = side_.batch().is_usual();
  replays_ = usual && options_.capture && side_.lane().can_capture() &&
             schedule_.shard < 3 && warm_steps_ >= kWarmSteps;
  if (usual) ++warm_steps_;
}

// What action `index` needs, and behind it all that finds memory for its gradients.
void DeviceCompute::reach(int index, Interpreter& interpreter) {
  while (!evaluates_ && launched_ < segments_.size()) {
    Segment& segment = segments_[launched_];
    const bool due = segment.actions.front() <= index;
    if (!due && (schedule_.shard == 3 || !may_launch(segment))) return;
    if (due) {
      for (const int action : segment.actions)
        for (const int earlier : role_.actions[action].waits)
          if (earlier < index) interpreter.finish(earlier);
      for (const int bucket : segment.touches) side_.settle(bucket);
    }
    launch(segment);
    ++launched_;
  }
}

bool DeviceCompute::may_launch(const Segment& segment) const {
  return std::all_of(segment.touches.begin(), segment.touches.end(), [&](int bucket) {
    return side_.is_settled(bucket) && !slot_taken_[schedule_.buckets[bucket].slot];
  });
}

void DeviceCompute::launch(Segment& segment) {
  side_.lane().join_uploads();
  // A rank that talks to nobody has no reduction to wait for before it uses a slot
  // again.
  if (takes_shares()) side_.lane().join_downloads();
  if (replays_) {
    if (segment.graph == kNone) capture(segment);
    side_.lane().replay(segment.graph);
    auto& statistics = blocks_.statistics();
    statistics.insert(statistics.end(), segment.statistics.begin(),
                      segment.statistics.end());
    if (segment.ends_forward) side_.set_count(segment.slice, segment.count);
  } else {
    const NoKernelSearch rare(!side_.batch().is_usual());
    side_.lane().run([&] { run(segment); });
  }
  side_.download(segment);
  if (schedule_.shard < 2) return;
  for (const int bucket : segment.finishes)
    slot_taken_[schedule_.buckets[bucket].slot] = true;
}

void DeviceCompute::run(const Segment& segment) {
  for (const int action : segment.actions) run(role_.actions[action]);
}

void DeviceCompute::run(const Action& action) {
  const auto [block, slice] = std::pair(action.block, action.slice);
  if (action.kind == ActionKind::kBackward) {
    Timed timed(step_.split.backward);
    blocks_.backward(block, slice);
  } else if (action.kind == ActionKind::kRecompute) {
    Timed timed(step_.split.backward);
    blocks_.recompute(block, slice);
  } else {
    Timed timed(step_.split.forward);
    blocks_.forward(block, slice, !evaluates_ && !recomputed_.contains({block, slice}));
  }
}

// Statistics and counts of a graph are the same tensors and numbers at every replay.
void DeviceCompute::capture(Segment& segment) {
  auto& statistics = blocks_.statistics();
  const size_t before = statistics.size();
  segment.graph = side_.lane().capture([&] { run(segment); });
  segment.count = side_.count(segment.slice);
  const auto fresh = statistics.begin() + static_cast<int64_t>(before);
  segment.statistics.assign(fresh, statistics.end());
  statistics.erase(fresh, statistics.end());
}

// In a step all was started in reach().
void DeviceCompute::compute(const Action& action) {
  if (!evaluates_) return;
  side_.lane().join_uploads();
  run(action);
}

Batch DeviceCompute::moved(const Batch& given, int64_t step) {
  DeviceBatch batch(side_.lane(), schedule_.precision.compute, chain_.block_fields(),
                    options_.seed, 1);
  batch.load(0, step, given);
  return batch.slice(0).samples;
}

double DeviceCompute::evaluate(const StepInput& input,
                               const std::function<void()>& run) {
  evaluates_ = true;
  correct_ = 0;
  const NoKernelSearch rare(true);
  side_.lane().run([&] {
    batches_ = {moved(input.batch(0), input.step)};
    blocks_.begin(input.step, Phase::kEvaluate);
    run();
  });
  abandon();
  return correct_;
}

void DeviceCompute::abandon() {
  blocks_.clear();
  evaluates_ = false;
}

const Batch& DeviceCompute::batch(int slice) { return batches_[slice]; }

DeviceRandom* DeviceCompute::random(int slice) {
  return evaluates_ ? nullptr : side_.batch().slice(slice).keys.get();
}

// Where nothing may wait, the host adds the loss up later.
void DeviceCompute::keep_loss(int slice, const WeightedLoss& loss) {
  if (!evaluates_) return side_.keep_loss(slice, loss);
  step_.sums.add_loss(loss.sum, loss.count);
  correct_ += loss.correct;
}

GradTarget DeviceCompute::home(int index, int slice) {
  const Place& place = state_.places()[index];
  const auto [memory, adds] = side_.leaf(place.bucket, slice);
  return {FlatState::view(memory, place), adds};
}

void DeviceCompute::settle_loss() {
  if (std::exchange(loss_settled_, true)) return;
  const auto [sum, count] = side_.settle_loss();
  step_.sums.add_loss(sum, count);
}

void DeviceCompute::has_summed(int bucket) {
  slot_taken_[schedule_.buckets[bucket].slot] = false;
}

std::vector<Statistic> DeviceCompute::statistics() {
  return side_.to_host(blocks_.statistics());
}

void DeviceCompute::apply(std::span<const Statistic> statistics) {
  side_.apply(statistics);
}

}  // namespace cohort
