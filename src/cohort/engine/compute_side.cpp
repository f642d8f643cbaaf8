// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/compute_side.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cohort/engine/timed.h"
#include "cohort/step/buckets.h"
#include "cohort/step/generator.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// Blocks and slices whose forward runs again before its backward, and keeps no graph.
std::set<std::pair<int, int>> recomputed_in(const Role& role) {
  std::set<std::pair<int, int>> all;
  for (const auto& action : role.actions)
    if (action.kind == ActionKind::kRecompute) all.emplace(action.block, action.slice);
  return all;
}

// By bucket: the block of this rank whose backward is the last to add to its gradient.
std::vector<int> last_adders_of(const Chain& chain, const Schedule& schedule,
                                const Role& role) {
  return last_to_add(schedule, bucket_uses(specs_of(chain), schedule.buckets),
                     schedule.mesh.coordinate(role.ranks[0], Axis::kPipe));
}

}  // namespace

bool has_first_block(const Role& role) {
  return std::ranges::any_of(role.actions, [](const Action& action) {
    return action.kind == ActionKind::kForward && action.block == 0;
  });
}

ComputeSide::ComputeSide(const Chain& chain, const FlatState& state,
                         GradientSums& gradients, const Schedule& schedule,
                         const Role& role, const BlockRunner::Options& options,
                         std::unique_ptr<StepBatches> batches, StepInFlight& step)
    : state_(state),
      gradients_(gradients),
      step_(step),
      recomputed_(recomputed_in(role)),
      last_to_add_(last_adders_of(chain, schedule, role)),
      batches_(std::move(batches)),
      blocks_(chain, *this, options) {}

void ComputeSide::begin_step(const StepInput& input, const Tensor& seed) {
  seed_ = seed;
  batches_->begin(input);
  blocks_.begin(input.step, Phase::kTrain);
}

ComputeSide::Answers ComputeSide::evaluate(const StepInput& input, Block* last,
                                           const std::function<void()>& run) {
  evaluates_ = true;
  answers_ = {};
  batches_->begin_evaluation(input);
  blocks_.begin(input.step, Phase::kEvaluate, last);
  run();
  abandon();
  return answers_;
}

void ComputeSide::abandon() {
  blocks_.clear();
  batches_->clear();
  evaluates_ = false;
}

void ComputeSide::compute(const Action& action) {
  if (action.kind != ActionKind::kForward && action.kind != ActionKind::kRecompute)
    return backward(action);
  const auto [block, slice] = std::pair(action.block, action.slice);
  batch(slice);  // loading it is no part of a forward
  const bool again = action.kind == ActionKind::kRecompute;
  Timed timed(again ? step_.split.backward : step_.split.forward);
  if (again) return blocks_.recompute(block, slice);
  blocks_.forward(block, slice, !evaluates_ && !recomputed_.contains({block, slice}));
}

void ComputeSide::backward(const Action& action) {
  Timed timed(step_.split.backward);
  const auto [block, slice] = std::pair(action.block, action.slice);
  if (action.kind == ActionKind::kBackwardInput)
    blocks_.backward_input(block, slice);
  else if (action.kind == ActionKind::kBackwardWeight)
    blocks_.backward_weight(block, slice);
  else
    blocks_.backward(block, slice);
  // What travels after it still asks for the number of its samples.
  if (!blocks_.is_under_way(slice)) batches_->drop(slice);
  if (action.kind == ActionKind::kBackwardInput) return;
  for (const int bucket : action.buckets)
    if (state_.buckets()[bucket].trained &&
        (gradients_.keeps_apart(bucket) || last_to_add_[bucket] == block))
      gradients_.finish_slice(bucket, slice, gradients_.use_of(bucket, block));
}

void ComputeSide::keep_loss(int, const WeightedLoss& loss) {
  step_.sums.add_loss(loss);
  if (!evaluates_) return;
  answers_.correct += loss.correct;
  answers_.named.resize(loss.named.size());
  for (size_t i = 0; i < loss.named.size(); ++i) answers_.named[i] += loss.named[i];
}

int ComputeSide::use_of(const Addend& to) const {
  return gradients_.use_of(state_.places()[to.place].bucket, to.block);
}

GradTarget ComputeSide::home(const Addend& to) {
  const FlatParameter& place = state_.places()[to.place];
  const auto [memory, adds] = gradients_.leaf(place.bucket, to.slice, use_of(to));
  return {FlatState::view(memory, place), adds};
}

void ComputeSide::open(const Addend& to) {
  if (gradients_.seals()) gradients_.open_born(to.place, to.slice, use_of(to));
}

void ComputeSide::close(const Addend& to) {
  if (gradients_.seals()) gradients_.close_born(to.place, to.slice, use_of(to));
}

}  // namespace cohort
