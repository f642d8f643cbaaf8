// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/host_state.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/statistics.h"
#include "cohort/engine/timed.h"

namespace cohort {

HostState::HostState(const Chain& chain, const Schedule& schedule, const Role& role,
                     const RankGroups& groups, const UpdateRule& rule, FlatState& state,
                     GradientSums& gradients, ComputeSide& compute, StepInFlight& step,
                     const ExecutorOptions& options, bool updates_at_once)
    : schedule_(schedule),
      role_(role),
      groups_(groups),
      options_(options),
      buffers_(chain.buffers()),
      state_(state),
      gradients_(gradients),
      compute_(compute),
      step_(step),
      updates_(schedule, groups, rule, state, gradients, step,
               {.clip = options.clip, .at_once = updates_at_once}),
      votes_(groups.world->allocate({1}, at::kLong)) {
  if (schedule_.precision.compute == at::kHalf) loss_scale_.emplace(options.loss_scale);
  if (gradients_.seals())
    seal_ = std::make_unique<StateSeal>(state_, chain, schedule_.shard);
  if (!options.takes_over) close_seals();
}

Tensor HostState::seed() { return at::full({}, step_.seed_scale); }

void HostState::begin_step(const StepInput& input) {
  input_ = &input;
  step_.seed_scale =
      loss_scale_ ? loss_scale_->value() * mean_scale(options_.usual_count) : 1;
  vote_state_ = {.phase = VoteState::Phase::kBefore};
  updated_.assign(schedule_.buckets.size(), false);
  as_expected_ = false;
  statistics_.clear();
  gradients_.begin_step();
}

void HostState::norm() {
  Timed timed(step_.split.update);
  updates_.norm(options_.communicate);
}

void HostState::fold_buffers() {
  Timed timed(step_.split.update);
  statistics_ = compute_.statistics();
  if (options_.communicate)
    statistics_ =
        gather_statistics(*groups_.world, buffers_, statistics_, role_.slices);
}

// Their sum came with the loss, so every rank finds the same, before it votes: nothing
// has changed, and a rank that finishes a step that was voted on knows what was drawn.
void HostState::check_samples() {
  if (!options_.communicate || std::exchange(as_expected_, true)) return;
  require_expected(*input_, step_.sums.drawn());
}

// From the call on peers may know of this vote; so a rank that is cut off in it has
// voted.
//
// What a rank computed from memory that had changed is in everyone's sums. So before
// anybody votes, each has looked at the memory it computed with: a rank that finds
// damage, or dies before it has looked, leaves a step that nobody voted on.
PendingWork HostState::vote(FaultPlan* faults) {
  check_samples();
  Communicator& world = *groups_.world;
  if (seal_) {
    require_sound(seal_->broken());
    require_sound_gradients();
    if (world.size() > 1 && options_.communicate) world.barrier().wait();
  }
  if (faults) faults->reach("engine.vote", world.rank());
  int64_t* const against = votes_.data_ptr<int64_t>();
  // What all have summed alike each rank looks at in part: the vote joins the findings.
  const bool alike = schedule_.shard == 0 && options_.communicate;
  const bool finite = alike
                          ? updates_.are_finite(groups_.dp->rank(), groups_.dp->size())
                          : updates_.are_finite();
  *against = finite ? 0 : 1;
  vote_state_ = {.phase = VoteState::Phase::kVoted, .against = !finite};
  const auto count = [this, against] {
    step_.skipped = *against > 0;
    vote_state_ = {.phase = VoteState::Phase::kDecided, .against = step_.skipped};
    if (step_.skipped && !options_.skips_bad_steps) updates_.stop_for_bad_sum();
  };
  if (world.size() == 1 || !options_.communicate) {
    count();
    return {};
  }
  return {world.all_reduce(votes_, ReduceOp::kSum), count};
}

void HostState::update(int bucket) {
  if (step_.skipped) return;
  Timed timed(step_.split.update);
  if (seal_) {
    require_sound(seal_->broken(bucket));
    require_sound(gradients_.broken_sum(bucket));
    seal_->open(bucket);
  }
  updates_.apply(bucket, vote_state_.phase != VoteState::Phase::kBefore);
  updated_[bucket] = true;
  if (seal_) seal_->close(bucket);
}

void HostState::commit() {
  check_samples();  // where a step has no vote, this is the only check
  const c10::NoGradGuard no_grad;
  Timed timed(step_.split.update);
  if (!step_.skipped) {
    if (seal_) require_sound(seal_->broken(seal_->buffers()));
    apply_statistics(statistics_);
    if (seal_) seal_->close(seal_->buffers());
  }
  if (loss_scale_) loss_scale_->commit(!step_.skipped);
  vote_state_ = {.phase = VoteState::Phase::kCommitted, .against = step_.skipped};
}

// A rank that does not know the outcome of a vote looks at everything: the ranks that
// looked at the rest may be gone.
VoteState HostState::vote_state() {
  VoteState now = vote_state_;
  if (now.phase == VoteState::Phase::kVoted && !now.against)
    now.against = !updates_.are_finite();
  return now;
}

// All that the step needs of others came before its vote (law 2, docs/design.md).
void HostState::finish(bool skip) {
  COHORT_CHECK(schedule_.elastic && vote_state_.phase != VoteState::Phase::kBefore,
               "a step that was not voted on cannot be finished alone");
  if (vote_state_.phase == VoteState::Phase::kCommitted) return;
  step_.skipped = skip;
  if (step_.skipped && !options_.skips_bad_steps) updates_.stop_for_bad_sum();
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].trained && !updated_[i]) update(i);
  commit();
}

std::string HostState::small_state() { return loss_scale_ ? loss_scale_->saved() : ""; }

void HostState::set_small_state(const std::string& text) {
  if (loss_scale_ && !text.empty()) loss_scale_->restore(text);
}

// ---- memory that changes by itself ----

void HostState::close_seals() {
  if (seal_) seal_->close_all();
}

void HostState::require_sound(const std::string& broken) const {
  if (broken.empty()) return;
  throw DamagedMemory(text("[engine] step ", step_.step + 1, ": the memory of ", broken,
                           " has changed by itself on rank ", groups_.world->rank(),
                           "; its state is taken from elsewhere"));
}

// Nobody has voted on them, and the state is as it was: the step is made again.
void HostState::require_sound_gradients() const {
  std::string broken = gradients_.broken();
  for (int i = 0; broken.empty() && i < static_cast<int>(updated_.size()); ++i)
    if (state_.buckets()[i].trained) broken = gradients_.broken_sum(i);
  if (!broken.empty())
    throw CommError(text("[engine] step ", step_.step + 1, ": ", broken,
                         " has changed by itself, as rank ", groups_.world->rank(),
                         " sees it; the step is made again"));
}

// A rank that has voted owes the step, and cannot make it of sums that have changed.
std::string HostState::damage() const {
  const bool owes = vote_state_.phase == VoteState::Phase::kVoted ||
                    vote_state_.phase == VoteState::Phase::kDecided;
  try {
    if (seal_) require_sound(seal_->broken());
    for (int i = 0; seal_ && owes && i < static_cast<int>(updated_.size()); ++i)
      if (state_.buckets()[i].trained && !updated_[i])
        require_sound(gradients_.broken_sum(i));
  } catch (const DamagedMemory& error) {
    return error.what();
  }
  return "";
}

void HostState::strike(FaultPlan& faults, int64_t index) {
  // Lies in a float32's fraction; 16 actions later it is another element's.
  const uint32_t bit = 1u << (22 - index % 16);
  const auto flips = [&](std::string_view point) {
    return faults.reach(point, groups_.world->rank(), index) == FaultPlan::Ask::kFlip;
  };
  const auto flip = [&](const Tensor& tensor) {
    const int64_t words =
        tensor.defined() ? static_cast<int64_t>(tensor.nbytes() / sizeof bit) : 0;
    if (words > 0) static_cast<uint32_t*>(tensor.data_ptr())[index / 16 % words] ^= bit;
  };
  const auto own = std::ranges::find_if(state_.buckets(), &BucketState::own);
  BucketState& bucket = *own;
  const int number = static_cast<int>(own - state_.buckets().begin());
  if (flips("engine.action")) flip(bucket.master);
  if (flips("engine.moment") && !bucket.states.empty()) flip(bucket.states.front());
  if (flips("engine.mirror")) {
    const auto copy = std::ranges::find_if(
        state_.buckets(), [](const auto& b) { return b.mirror.has_value(); });
    if (copy != state_.buckets().end()) flip(copy->mirror->master);
  }
  if (flips("engine.gradient")) {
    // Each time other memory, and another element of it.
    const auto all = gradients_.memory(number);
    const Tensor some = all[index % static_cast<int64_t>(all.size())].view({-1});
    const int64_t at = index * 1009 % some.numel() / 2 * 2;
    flip(some.narrow(0, at, some.numel() - at));
  }
}

}  // namespace cohort
