// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/host_compute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cohort/engine/statistics.h"
#include "cohort/engine/timed.h"

namespace cohort {
namespace {

// Along a pipeline all have the same samples; they count where they come in.
bool has_first_block(const Role& role) {
  return std::ranges::any_of(role.actions, [](const Action& action) {
    return action.kind == ActionKind::kForward && action.block == 0;
  });
}

}  // namespace

HostCompute::HostCompute(const Chain& chain, const FlatState& state,
                         GradientSums& gradients, const Schedule& schedule,
                         const Role& role, int first_slice, uint64_t seed,
                         CheckedCalls& calls, StepInFlight& step)
    : state_(state),
      gradients_(gradients),
      step_(step),
      compute_(schedule.precision.compute),
      first_slice_(first_slice),
      recomputed_(recomputed_in(role)),
      last_to_add_(last_adders_of(chain, schedule)),
      block_fields_(chain.block_fields()),
      draws_(has_first_block(role)),
      blocks_(chain, *this,
              {.seed = seed, .first_slice = first_slice, .calls = &calls}) {}

void HostCompute::begin_step(const StepInput& input, double seed_scale) {
  input_ = &input;
  seed_scale_ = seed_scale;
  batches_.clear();
  blocks_.begin(input.step, Phase::kTrain);
}

double HostCompute::evaluate(const StepInput& input, const std::function<void()>& run) {
  input_ = &input;
  evaluates_ = true;
  correct_ = 0;
  batches_.clear();
  blocks_.begin(input.step, Phase::kEvaluate);
  run();
  abandon();
  return correct_;
}

void HostCompute::abandon() {
  blocks_.clear();
  batches_.clear();
  evaluates_ = false;
}

const Batch& HostCompute::batch(int slice) {
  if (const auto it = batches_.find(slice); it != batches_.end()) return it->second;
  Timed timed(step_.split.data);
  Batch batch = input_->batch(first_slice_ + slice);
  if (!evaluates_ && draws_) step_.sums.draw(input_->sample_key, batch.ids);
  for (const auto& name : block_fields_)
    if (const auto it = batch.fields.find(name);
        it != batch.fields.end() && it->second.is_floating_point())
      it->second = it->second.to(compute_);
  return batches_[slice] = std::move(batch);
}

void HostCompute::compute(const Action& action) {
  if (action.kind == ActionKind::kBackward) return backward(action);
  const auto [block, slice] = std::pair(action.block, action.slice);
  batch(slice);  // loading it is no part of a forward
  const bool again = action.kind == ActionKind::kRecompute;
  Timed timed(again ? step_.split.backward : step_.split.forward);
  if (again) return blocks_.recompute(block, slice);
  blocks_.forward(block, slice, !evaluates_ && !recomputed_.contains({block, slice}));
}

void HostCompute::backward(const Action& action) {
  Timed timed(step_.split.backward);
  blocks_.backward(action.block, action.slice);
  for (const int bucket : action.buckets)
    if (last_to_add_[bucket] == action.block && state_.buckets()[bucket].trained)
      gradients_.finish_slice(bucket, action.slice);
  // What travels after it still asks for the number of its samples.
  if (!blocks_.is_under_way(action.slice)) batches_[action.slice].fields.clear();
}

void HostCompute::apply(std::span<const Statistic> statistics) {
  apply_statistics(statistics);
}

void HostCompute::keep_loss(int, const WeightedLoss& loss) {
  step_.sums.add_loss(loss.sum.item<double>(), loss.count);
  correct_ += loss.correct;
}

Tensor HostCompute::seed() { return at::full({}, seed_scale_); }

GradTarget HostCompute::home(int index, int slice) {
  const Place& place = state_.places()[index];
  const auto [memory, adds] = gradients_.leaf(place.bucket, slice);
  return {FlatState::view(memory, place), adds};
}

void HostCompute::open(int place, int slice) {
  if (gradients_.seals()) gradients_.open_born(place, slice);
}

void HostCompute::close(int place, int slice) {
  if (gradients_.seals()) gradients_.close_born(place, slice);
}

}  // namespace cohort
