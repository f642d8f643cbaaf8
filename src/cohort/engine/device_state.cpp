// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/device_state.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>

#include "cohort/core/error.h"

namespace cohort {
namespace {

Tensor double_of(const Tensor& numbers, size_t offset) {
  return numbers.narrow(0, static_cast<int64_t>(offset), sizeof(double))
      .view(at::kDouble);
}

Tensor decided_of(const Tensor& numbers) {
  return numbers.narrow(0, offsetof(StepNumbers, decided), sizeof(int64_t))
      .view(at::kLong);
}

bool has_vote(const Role& role) {
  return std::ranges::any_of(role.actions, [](const Action& action) {
    return action.kind == ActionKind::kVote;
  });
}

}  // namespace

DeviceState::DeviceState(const Chain& chain, const Schedule& schedule, const Role& role,
                         const RankGroups& groups, const StateHome& home,
                         CudaLane& lane, const UpdateRule& rule, FlatState& state,
                         GradientSums& gradients, ComputeSide& compute,
                         StepInFlight& step, const ExecutorOptions& options)
    : schedule_(schedule),
      groups_(groups),
      options_(options),
      home_(home),
      lane_(lane),
      state_(state),
      gradients_(gradients),
      compute_(compute),
      step_(step),
      rounds_(schedule.mesh.rounds(schedule.slices)),
      has_vote_(has_vote(role)),
      may_skip_(options.skips_bad_steps && has_vote_),
      norm_(state, home, rule, groups),
      statistics_(chain, home.device()),
      updates_(state.buckets().size()),
      stop_(groups.world->stop_word()),
      sent_numbers_(make_step_numbers(home.device())),
      loss_scale_(options.loss_scale, schedule.precision.compute, home.device()),
      results_(lane, *groups.world, numbers_there(), step) {
  COHORT_CHECK(options.update.name == rule.name(), "a rule '", rule.name(),
               "' with the kernels of '", options.update.name, "'");
  for (int i = 0; i < static_cast<int>(updates_.size()); ++i) {
    const BucketState& bucket = state.buckets()[i];
    if (!bucket.trained) continue;
    if (bucket.own) updates_[i].own = update_of(i, bucket);
    if (bucket.mirror) updates_[i].mirror = update_of(i, *bucket.mirror);
  }
  const auto on = at::TensorOptions().device(home.device());
  votes_ = at::zeros({groups.world->size()}, on.dtype(at::kLong));
  unexpected_ = at::zeros({1}, on.dtype(at::kBool));
}

std::unique_ptr<ShardUpdate> DeviceState::update_of(int bucket,
                                                    const ShardState& shard) const {
  const bool own = &shard == &state_.buckets()[bucket];
  const Tensor sum = own ? gradients_.sum(bucket) : gradients_.mirrored_sum(bucket);
  ShardUpdateOptions update{.rule = options_.update,
                            .ranges = norm_.ranges_of(bucket, shard),
                            .gradient = sum.scalar_type()};
  if (const Tensor seen = own ? published(bucket) : Tensor(); seen.defined())
    update.published = seen.scalar_type();
  return home_.kernels->make_shard_update(update);
}

// What blocks compute with of the shard; undefined: its master.
Tensor DeviceState::published(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  const Tensor visible = state.travels.defined()
                             ? state.travels
                             : state.whole.narrow(0, state.begin, state.count);
  return visible.data_ptr() != state.master.data_ptr() ? visible : Tensor();
}

ShardMemory DeviceState::memory_of(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  return {state.master, state.states, published(bucket)};
}

void DeviceState::begin_step(const StepInput& input) {
  if (is_settled()) vote_state_ = {.phase = VoteState::Phase::kBefore};
  step_.sums.expect(options_.communicate ? input.expected : std::nullopt);
}

void DeviceState::begin_changes(const StepInput& input) {
  const c10::NoGradGuard no_grad;
  number_ = input.step;
  expected_ = options_.communicate ? input.expected : std::nullopt;
  started_ = {};
  forget_started();
  vote_state_.reset();
  gradients_.begin_step();
  StepNumbers numbers =
      step_numbers_of(options_.update, {.rate = input.rate, .step = input.step + 1});
  sent_numbers_.send(bytes_of(numbers));
  loss_scale_.begin_step(options_.usual_count);
}

// The count is that of all ranks from here on: its reduction comes before every other.
void DeviceState::set_scale() {
  if (std::exchange(started_.scale, true)) return;
  const Tensor scale = step_.sums.count_value().mul(loss_scale_.seed()).reciprocal_();
  double_of(numbers_there(), offsetof(StepNumbers, mean_scale)).copy_(scale);
  double_of(numbers_there(), offsetof(StepNumbers, grad_scale)).copy_(scale);
  unexpected_.copy_(step_.sums.is_unexpected());
}

void DeviceState::norm() {
  const c10::NoGradGuard no_grad;
  set_scale();
  const Sharers sharers = sharers_of(schedule_, groups_, options_.communicate);
  norm_.measure(gradients_, sharers, options_.clip, numbers_there());
  norm_.add_up(sharers, [&](int bucket, const Tensor& sums) {
    updates_[bucket].own->reduce(memory_of(bucket), gradients_.sum(bucket),
                                 numbers_there(), sums);
  });
}

void DeviceState::fold_buffers() {
  Communicator& world = *groups_.world;
  const bool several = !schedule_.groups.empty() && options_.communicate;
  statistics_.fold(compute_.statistics(), rounds_, several ? &world : nullptr);
}

void DeviceState::look_at(int bucket) {
  home_.kernels->mark_not_finite(gradients_.sum(bucket),
                                 not_finite_of(numbers_there()));
}

// Without a vote: each rank for itself.
void DeviceState::open_gate() {
  const Tensor good = not_finite_of(numbers_there()) == 0;
  gate_of(numbers_there()).copy_(good.logical_and(unexpected_.logical_not()));
}

// Nobody votes on a step whose ranks drew other samples: all of them know.
PendingWork DeviceState::vote(FaultPlan* faults) {
  const c10::NoGradGuard no_grad;
  Communicator& world = *groups_.world;
  if (faults) faults->reach("engine.vote", world.rank());
  set_scale();
  for (size_t i = 0; i < updates_.size(); ++i)
    if (updates_[i].own) look_at(static_cast<int>(i));
  const bool several = !schedule_.groups.empty() && options_.communicate;
  const Tensor mine = votes_.narrow(0, world.rank(), 1);
  home_.kernels->cast_vote(numbers_there(), unexpected_, stop_, mine);
  if (several) world.all_gather(votes_, mine).join();
  home_.kernels->count_votes(several ? votes_ : mine, numbers_there());
  started_.vote = true;
  return {};
}

void DeviceState::update(int bucket) {
  const auto& [own, mirror] = updates_[bucket];
  if (!own && !mirror) return;
  const c10::NoGradGuard no_grad;
  set_scale();
  if (!started_.vote && own) {
    look_at(bucket);
    open_gate();
  }
  if (own)
    own->apply(memory_of(bucket), gradients_.sum(bucket), numbers_there(),
               norm_.totals());
  if (mirror) {
    const ShardState& copy = *state_.buckets()[bucket].mirror;
    mirror->apply({copy.master, copy.states, Tensor()}, gradients_.mirrored_sum(bucket),
                  numbers_there(), norm_.totals());
  }
  started_.updates[bucket] = true;
}

// A gate that is closed because votes are missing says nothing about the loss scale.
void DeviceState::commit() {
  const c10::NoGradGuard no_grad;
  started_.commit = true;
  const Tensor gate = gate_of(numbers_there());
  statistics_.commit(gate);
  loss_scale_.commit(gate, has_vote_ ? decided_of(numbers_there()) != 0
                                     : at::ones_like(gate, at::kBool));
}

void DeviceState::has_replayed() {
  started_ = {.scale = true,
              .vote = true,
              .commit = true,
              .updates = std::vector<bool>(updates_.size(), true)};
}

void DeviceState::settle() {
  const StepResults::Result& result = results_.await();
  step_.sums.settle(result.sums);
  step_.settled_split = step_.clock
                            ? step_.clock->split_of(result.times, result.split.data)
                            : result.split;
  require_expected({.step = result.step, .expected = result.expected},
                   step_.sums.drawn());
  const StepNumbers numbers = read_step_numbers(result.numbers);
  // This rank was stopped before it voted, and what it waited for ended all the same.
  if (has_vote_ && numbers.decided != result.step + 1)
    throw CommError(text("[engine] step ", result.step + 1,
                         ": the world ended before all of its ranks had voted"));
  results_.pop();
  conclude(result.step, numbers);
}

void DeviceState::conclude(int64_t step, const StepNumbers& numbers) {
  step_.norm = numbers.norm;
  step_.skipped = numbers.gate == 0;
  vote_state_ = {.phase = VoteState::Phase::kCommitted, .against = step_.skipped};
  if (!step_.skipped || may_skip_) return;
  // What the next step has begun to write says nothing of this one.
  if (!results_.empty())
    throw Error(ErrorKind::kBug, text("[engine] step ", step + 1,
                                      ": a gradient is not finite", kNotFiniteAdvice));
  const std::string name = bad_gradient();
  throw Error(
      ErrorKind::kBug,
      text("[engine] step ", step + 1, ": ",
           name.empty() ? std::string("a gradient that another rank sums")
                        : text("the gradient of ", name),
           name.empty() ? " is no number" : " is not finite", kNotFiniteAdvice));
}

// Behind a closed gate updates that were started changed nothing.
VoteState DeviceState::vote_state() {
  if (vote_state_) return *vote_state_;
  if (!lane_.wait_at_most(kDrainTime))
    throw Error(
        ErrorKind::kBug,
        text("[engine] step ", number_ + 1, ": the GPU of rank ", groups_.world->rank(),
             " does not come to an end; its state is taken from elsewhere"));
  using Phase = VoteState::Phase;
  StepNumbers numbers;
  lane_.run([&] { numbers = read_step_numbers(numbers_there()); });
  const int64_t step = number_ + 1;
  vote_state_ = {.phase = Phase::kBefore};
  if (numbers.voted == step) {
    vote_state_ = {.phase = Phase::kVoted, .against = numbers.not_finite != 0};
    if (numbers.decided == step)
      vote_state_ = {.phase = Phase::kDecided, .against = numbers.gate == 0};
    else
      forget_started();
  }
  return *vote_state_;
}

std::string DeviceState::bad_gradient() const {
  for (const auto& place : state_.places()) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (!updates_[place.bucket].own) continue;
    const int64_t from = std::max(place.offset, bucket.begin) - bucket.begin;
    const int64_t to =
        std::min(place.offset + place.parameter.numel(), bucket.begin + bucket.count) -
        bucket.begin;
    if (from < to && !gradients_.sum(place.bucket)
                          .narrow(0, from, to - from)
                          .isfinite()
                          .all()
                          .item<bool>())
      return place.name;
  }
  return "";
}

// Nobody looks for flipped bits here.
void DeviceState::strike(FaultPlan& faults, int64_t index) {
  faults.reach("engine.action", groups_.world->rank(), index);
}

void DeviceState::forget_started() {
  started_.updates.assign(updates_.size(), false);
  started_.commit = false;
}

// All that the step needs of others came before its vote (law 2, docs/design.md).
void DeviceState::finish(bool skip) {
  const c10::NoGradGuard no_grad;
  const VoteState now = vote_state();
  COHORT_CHECK(schedule_.elastic && now.phase != VoteState::Phase::kBefore,
               "a step that was not voted on cannot be finished alone");
  if (now.phase == VoteState::Phase::kCommitted) return;
  started_.scale = started_.vote = true;
  gate_of(numbers_there()).fill_(skip ? 0 : 1);
  decided_of(numbers_there()).fill_(number_ + 1);
  for (int i = 0; i < static_cast<int>(updates_.size()); ++i)
    if (!started_.updates[i]) update(i);
  if (!started_.commit) commit();
  settle_sums();
  results_.clear();
  step_.settled_split = step_.split;
  conclude(number_, read_step_numbers(numbers_there()));
}

// A step that was started to its end has left a copy, and the next one may have begun
// to write where its sums were.
void DeviceState::settle_sums() {
  if (const StepResults::Result* left = results_.oldest())
    step_.sums.settle(left->sums);
  else
    step_.sums.settle();
}

}  // namespace cohort
