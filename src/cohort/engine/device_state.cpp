// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/device_state.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>

#include "cohort/core/error.h"
#include "cohort/optim/loss_scale.h"

namespace cohort {
namespace {

constexpr auto kBeforeVote = Standing::Phase::kBefore;

Tensor double_of(const Tensor& numbers, size_t offset) {
  return numbers.narrow(0, static_cast<int64_t>(offset), sizeof(double))
      .view(at::kDouble);
}

bool has_vote(const Role& role) {
  return std::ranges::any_of(role.actions, [](const Action& action) {
    return action.kind == ActionKind::kVote;
  });
}

}  // namespace

DeviceState::DeviceState(const Chain& chain, const Schedule& schedule, const Role& role,
                         const RankGroups& groups, const StateHome& home,
                         const UpdateRule& rule, FlatState& state,
                         GradientSums& gradients, ComputeSide& compute,
                         StepInFlight& step, const ExecutorOptions& options)
    : schedule_(schedule),
      groups_(groups),
      options_(options),
      home_(home),
      state_(state),
      gradients_(gradients),
      compute_(compute),
      step_(step),
      rounds_(schedule.mesh.rounds(schedule.slices)),
      may_skip_(options.leaves_out && has_vote(role)),
      norm_(state, home, rule),
      statistics_(chain, home.device()),
      updates_(state.buckets().size()),
      numbers_(make_step_numbers(home.device())) {
  COHORT_CHECK(options.update.name == rule.name(), "a rule '", rule.name(),
               "' with the kernels of '", options.update.name, "'");
  for (size_t i = 0; i < updates_.size(); ++i)
    if (const BucketState& bucket = state.buckets()[i]; bucket.trained && bucket.own)
      updates_[i] = home_.kernels->make_share_update(update_of(static_cast<int>(i)));
  const auto on = at::TensorOptions().device(home.device());
  against_ = at::zeros({1}, on.dtype(at::kLong));
  unexpected_ = at::zeros({1}, on.dtype(at::kBool));
  const bool half = schedule.precision.compute == at::kHalf;
  if (half) LossScale{options.loss_scale};  // refuses what cannot be
  scale_ = at::full({1}, half ? options.loss_scale.initial : 1.0, on.dtype(at::kFloat));
  good_steps_ = at::zeros({1}, on.dtype(at::kInt));
  seed_ = at::ones({}, on.dtype(at::kFloat));
}

ShareUpdateOptions DeviceState::update_of(int bucket) const {
  ShareUpdateOptions update{.rule = options_.update,
                            .ranges = norm_.ranges_of(bucket),
                            .gradient = gradients_.sum(bucket).scalar_type()};
  if (const Tensor published = memory_of(bucket).published; published.defined())
    update.published = published.scalar_type();
  return update;
}

ShareMemory DeviceState::memory_of(int bucket) const {
  const BucketState& state = state_.buckets()[bucket];
  const Tensor visible = state.travels.defined()
                             ? state.travels
                             : state.whole.narrow(0, state.begin, state.count);
  const bool apart = visible.data_ptr() != state.master.data_ptr();
  return {state.master, state.states, apart ? visible : Tensor()};
}

void DeviceState::begin_step(const StepInput& input) {
  const c10::NoGradGuard no_grad;
  expected_ = options_.communicate ? input.expected : std::nullopt;
  is_scaled_ = is_voted_ = false;
  standing_ = {.phase = kBeforeVote};
  gradients_.begin_step();
  step_.sums.expect(expected_);
  send_step_numbers(
      numbers_,
      step_numbers_of(options_.update, {.rate = input.rate, .step = input.step + 1}));
  if (schedule_.precision.compute == at::kHalf)
    seed_.copy_(scale_.squeeze(0) * mean_scale(options_.usual_count));
}

// The count is that of all ranks from here on: its reduction comes before every other.
void DeviceState::set_scale() {
  if (std::exchange(is_scaled_, true)) return;
  const Tensor scale = step_.sums.count_value().mul(seed_).reciprocal_();
  double_of(numbers_, offsetof(StepNumbers, mean_scale)).copy_(scale);
  double_of(numbers_, offsetof(StepNumbers, grad_scale)).copy_(scale);
  unexpected_.copy_(step_.sums.is_unexpected());
}

void DeviceState::norm() {
  const c10::NoGradGuard no_grad;
  set_scale();
  const Sharers sharers = sharers_of(schedule_, groups_, options_.communicate);
  norm_.measure(gradients_, sharers, options_.clip, numbers_);
  norm_.add_up(sharers, [&](int bucket, const Tensor& sums) {
    updates_[bucket]->reduce(memory_of(bucket), gradients_.sum(bucket), numbers_, sums);
  });
}

void DeviceState::fold_buffers() {
  Communicator& world = *groups_.world;
  const bool several = world.size() > 1 && options_.communicate;
  statistics_.fold(compute_.statistics(), rounds_, several ? &world : nullptr);
}

void DeviceState::look_at(int bucket) {
  home_.kernels->mark_not_finite(gradients_.sum(bucket), not_finite_of(numbers_));
}

// What the ranks drew all of them know.
void DeviceState::open_gate(const Tensor& against) {
  gate_of(numbers_).copy_((against == 0).logical_and_(unexpected_.logical_not()));
}

PendingWork DeviceState::vote() {
  const c10::NoGradGuard no_grad;
  if (options_.faults) options_.faults->reach("engine.vote", groups_.world->rank());
  set_scale();
  for (size_t i = 0; i < updates_.size(); ++i)
    if (updates_[i]) look_at(static_cast<int>(i));
  against_.copy_(not_finite_of(numbers_));
  if (groups_.world->size() > 1 && options_.communicate)
    groups_.world->all_reduce(against_, ReduceOp::kSum).join();
  open_gate(against_);
  is_voted_ = true;
  return {};
}

void DeviceState::update(int bucket) {
  if (!updates_[bucket]) return;
  const c10::NoGradGuard no_grad;
  set_scale();
  if (!is_voted_) {
    look_at(bucket);
    open_gate(not_finite_of(numbers_));
  }
  updates_[bucket]->apply(memory_of(bucket), gradients_.sum(bucket), numbers_,
                          norm_.totals());
}

void DeviceState::commit() {
  const c10::NoGradGuard no_grad;
  statistics_.commit(gate_of(numbers_));
  if (schedule_.precision.compute != at::kHalf) return;
  const Tensor skipped = (gate_of(numbers_) == 0).to(at::kFloat);
  at::_amp_update_scale_(scale_, good_steps_, skipped, options_.loss_scale.growth,
                         options_.loss_scale.backoff, options_.loss_scale.growth_steps);
}

// A copy to the host would wait for a lost peer without end.
void DeviceState::settle() {
  groups_.world->so_far().wait();
  step_.sums.settle();
  const StepNumbers numbers = read_step_numbers(numbers_);
  step_.norm = numbers.norm;
  step_.skipped = numbers.gate == 0;
  standing_ = {.phase = Standing::Phase::kCommitted, .against = step_.skipped};
  require_expected({.step = step_.step, .expected = expected_}, step_.sums.drawn());
  if (!step_.skipped || may_skip_) return;
  const std::string name = bad_gradient();
  throw Error(
      ErrorKind::kBug,
      text("[engine] step ", step_.step + 1, ": ",
           name.empty() ? std::string("a gradient that another rank sums")
                        : text("the gradient of ", name),
           name.empty() ? " is no number" : " is not finite", kNotFiniteAdvice));
}

std::string DeviceState::bad_gradient() const {
  for (const auto& place : state_.places()) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (!updates_[place.bucket]) continue;
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
void DeviceState::strike(int64_t index) {
  options_.faults->reach("engine.action", groups_.world->rank(), index);
}

void DeviceState::finish(bool) {
  throw BugError("[engine] a step on a device is committed as a whole");
}

std::string DeviceState::small_state() {
  if (schedule_.precision.compute != at::kHalf) return "";
  LossScale scale(options_.loss_scale);
  scale.restore(scale_.item<double>(), good_steps_.item<int64_t>());
  return scale.saved();
}

void DeviceState::set_small_state(const std::string& text) {
  if (schedule_.precision.compute != at::kHalf || text.empty()) return;
  LossScale scale(options_.loss_scale);
  scale.restore(text);
  scale_.fill_(scale.value());
  good_steps_.fill_(scale.good_steps());
}

}  // namespace cohort
