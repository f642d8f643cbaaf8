// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/in_place_compute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cohort/engine/statistics.h"
#include "cohort/engine/timed.h"

namespace cohort {

bool has_first_block(const Role& role) {
  return std::ranges::any_of(role.actions, [](const Action& action) {
    return action.kind == ActionKind::kForward && action.block == 0;
  });
}

InPlaceCompute::InPlaceCompute(const Chain& chain, const FlatState& state,
                               GradientSums& gradients, const Schedule& schedule,
                               const Role& role, const BlockRunner::Options& options,
                               std::unique_ptr<StepBatches> batches, StepInFlight& step)
    : state_(state),
      gradients_(gradients),
      step_(step),
      recomputed_(recomputed_in(role)),
      last_to_add_(last_adders_of(chain, schedule)),
      batches_(std::move(batches)),
      blocks_(chain, *this, options) {}

void InPlaceCompute::begin_step(const StepInput& input, const Tensor& seed) {
  seed_ = seed;
  batches_->begin(input);
  blocks_.begin(input.step, Phase::kTrain);
}

double InPlaceCompute::evaluate(const StepInput& input,
                                const std::function<void()>& run) {
  evaluates_ = true;
  correct_ = 0;
  batches_->begin_evaluation(input);
  blocks_.begin(input.step, Phase::kEvaluate);
  run();
  abandon();
  return correct_;
}

void InPlaceCompute::abandon() {
  blocks_.clear();
  batches_->clear();
  evaluates_ = false;
}

void InPlaceCompute::compute(const Action& action) {
  if (action.kind == ActionKind::kBackward) return backward(action);
  const auto [block, slice] = std::pair(action.block, action.slice);
  batch(slice);  // loading it is no part of a forward
  const bool again = action.kind == ActionKind::kRecompute;
  Timed timed(again ? step_.split.backward : step_.split.forward);
  if (again) return blocks_.recompute(block, slice);
  blocks_.forward(block, slice, !evaluates_ && !recomputed_.contains({block, slice}));
}

void InPlaceCompute::backward(const Action& action) {
  Timed timed(step_.split.backward);
  blocks_.backward(action.block, action.slice);
  for (const int bucket : action.buckets)
    if (last_to_add_[bucket] == action.block && state_.buckets()[bucket].trained)
      gradients_.finish_slice(bucket, action.slice);
  // What travels after it still asks for the number of its samples.
  if (!blocks_.is_under_way(action.slice)) batches_->drop(action.slice);
}

void InPlaceCompute::apply(std::span<const Statistic> statistics) {
  apply_statistics(statistics);
}

void InPlaceCompute::keep_loss(int, const WeightedLoss& loss) {
  step_.sums.add_loss(loss.sum, loss.count);
  correct_ += loss.correct;
}

GradTarget InPlaceCompute::home(int index, int slice) {
  const Place& place = state_.places()[index];
  const auto [memory, adds] = gradients_.leaf(place.bucket, slice);
  return {FlatState::view(memory, place), adds};
}

void InPlaceCompute::open(int place, int slice) {
  if (gradients_.seals()) gradients_.open_born(place, slice);
}

void InPlaceCompute::close(int place, int slice) {
  if (gradients_.seals()) gradients_.close_born(place, slice);
}

}  // namespace cohort
