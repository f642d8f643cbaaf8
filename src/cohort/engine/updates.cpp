// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/updates.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cohort/core/error.h"
#include "cohort/engine/norm.h"
#include "cohort/engine/step_runner.h"
#include "cohort/engine/sum.h"
#include "cohort/optim/gradient_norm.h"

namespace cohort {

Updates::Updates(const Schedule& schedule, const RankGroups& groups,
                 const UpdateRule& rule, FlatState& state, GradientSums& gradients,
                 StepInFlight& step, const Options& options)
    : schedule_(schedule),
      groups_(groups),
      rule_(rule),
      state_(state),
      gradients_(gradients),
      step_(step),
      options_(options),
      totals_(state, rule) {
  visitor_ = [this](int bucket, int64_t begin, int64_t count, float* sum) {
    visit(bucket, begin, count, sum);
  };
  require_norm();
  COHORT_CHECK(!options.at_once || GradientSums::can_visit(groups),
               "the step updates in its reductions, and ranks share no memory");
  if (!options.at_once || schedule.shard == 3) return;
  auto& peers = dynamic_cast<PeerMemory&>(*groups.shard);
  for (const auto& bucket : state.buckets())
    peer_parameters_.push_back(bucket.own ? peers.map_peers(bucket.whole)
                                          : std::vector<Tensor>());
}

// A rule with sums over tensors has them from the Norm of the step.
void Updates::require_norm() const {
  if (rule_.reductions() == 0) return;
  const Role& role = schedule_.role_of(groups_.world->rank());
  if (!updates_at_once(role) &&
      std::ranges::any_of(role.actions, [](const Action& action) {
        return action.kind == ActionKind::kNorm;
      }))
    return;
  throw ConfigError(text("[engine] optimizer '", rule_.name(),
                         "' needs sums over tensors before any update, and this step "
                         "makes none; legal: a step generated with tensor_sums, or "
                         "sgd, adam, adamw"));
}

// The loss was reduced before any bucket in the same lane, so its count is global.
StepScalars Updates::scalars() const {
  double scale = 1.0 / (step_.sums.count() * step_.seed_scale);
  if (options_.clip > 0) scale *= clip_factor(step_.norm, options_.clip);
  return {.rate = step_.rate, .grad_scale = scale, .step = step_.step + 1};
}

// Updates a stretch of this rank's shard and hands the parameters to every other rank.
// The optimizer's state of a shard is its owner's alone: nobody else reads it.
void Updates::visit(int bucket, int64_t begin, int64_t count, float* sum) {
  check_sum(bucket, begin, count, sum);
  BucketState& mine = state_.buckets()[bucket];
  update_range(rule_, mine.ranges, mine, begin, count, sum, totals_, scalars());
  const float* updated = mine.master.const_data_ptr<float>() + (begin - mine.begin);
  const Tensor& visible = schedule_.shard == 3 ? mine.travels : mine.whole;
  const auto width = static_cast<int64_t>(visible.element_size());
  const int64_t at = schedule_.shard == 3 ? begin - mine.begin : begin;
  auto* const own = static_cast<std::byte*>(visible.data_ptr()) + at * width;
  if (own != reinterpret_cast<const std::byte*>(updated))
    narrow(visible.scalar_type(), updated, count, own);
  if (schedule_.shard == 3) return;
  for (int r = 0; r < groups_.shard->size(); ++r)
    if (r != groups_.shard->rank())
      std::memcpy(static_cast<std::byte*>(peer_parameters_[bucket][r].data_ptr()) +
                      begin * width,
                  own, static_cast<size_t>(count * width));
}

// Padding between parameters may hold anything; only an element of a parameter counts.
template <typename Real>
void Updates::check_sum(int bucket, int64_t begin, int64_t count, const Real* sum) {
  if (all_finite(sum, count) || !step_.not_finite.empty()) return;
  for (const auto& place : state_.places()) {
    if (place.bucket != bucket) continue;
    const int64_t from = std::max(begin, place.offset);
    const int64_t to = std::min(begin + count, place.offset + place.parameter.numel());
    for (int64_t i = from; i < to; ++i) {
      if (std::isfinite(sum[i - begin])) continue;
      const auto rank = gradients_.blame(bucket, i);
      step_.not_finite =
          text("[engine] step ", step_.step + 1, ": the gradient of ", place.name,
               rank ? text(" on rank ", *rank) : " (summed over ranks)", " is ",
               sum[i - begin], kNotFiniteAdvice);
      return;
    }
  }
}

void Updates::require_finite() const {
  if (!step_.not_finite.empty()) throw Error(ErrorKind::kBug, step_.not_finite);
}

void Updates::apply(int bucket, bool voted) {
  BucketState& state = state_.buckets()[bucket];
  apply_to(bucket, state, gradients_.sum(bucket), voted);
  if (state.mirror)
    apply_to(bucket, *state.mirror, gradients_.mirrored_sum(bucket), voted);
}

// Whether its sum was looked at, and is no number.
template <typename Real>
bool Updates::update_stretch(int bucket, ShardState& shard, const Tensor& sum,
                             int64_t at, bool voted, std::vector<Real>& widened) {
  const BucketState& whole = state_.buckets()[bucket];
  const int64_t count = std::min(kStretch, shard.count - at);
  const Real* const gradient = widened_part(sum, at, count, widened);
  const bool bad = !voted && !all_finite(gradient, count);
  update_range(rule_, whole.ranges, shard, shard.begin + at, count, gradient, totals_,
               scalars());
  if (&shard == &whole) state_.publish(bucket, at, count);
  return bad;
}

void Updates::apply_to(int bucket, ShardState& shard, const Tensor& sum, bool voted) {
  const int64_t stretches = (shard.count + kStretch - 1) / kStretch;
  std::vector<char> bad(static_cast<size_t>(stretches), 0);
  at::parallel_for(0, stretches, 1, [&](int64_t begin, int64_t end) {
    with_kept_type(shard.master.scalar_type(), [&](auto real) {
      std::vector<decltype(real)> widened;
      for (int64_t i = begin; i < end; ++i)
        bad[i] = update_stretch(bucket, shard, sum, i * kStretch, voted, widened);
    });
  });
  for (int64_t i = 0; i < stretches; ++i)
    if (bad[i]) check_stretch(bucket, shard, sum, i * kStretch);
  require_finite();
}

void Updates::check_stretch(int bucket, const ShardState& shard, const Tensor& sum,
                            int64_t at) {
  const int64_t count = std::min(kStretch, shard.count - at);
  with_kept_type(shard.master.scalar_type(), [&](auto real) {
    std::vector<decltype(real)> widened;
    check_sum(bucket, shard.begin + at, count, widened_part(sum, at, count, widened));
  });
}

void Updates::stop_for_bad_sum() {
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    const BucketState& bucket = state_.buckets()[i];
    for (int64_t at = 0; bucket.trained && at < bucket.count; at += kStretch)
      check_stretch(i, bucket, gradients_.sum(i), at);
  }
  if (step_.not_finite.empty())
    step_.not_finite =
        text("[engine] step ", step_.step + 1,
             ": a gradient that another rank sums is no number", kNotFiniteAdvice);
  throw Error(ErrorKind::kBug, step_.not_finite);
}

// What tensors are asked for depends on the factor of clipping.
void Updates::norm(bool communicate) {
  const bool sums = rule_.reductions() > 0;
  const Sharers sharers = sharers_of(schedule_, groups_, communicate);
  if (options_.clip > 0 || !sums)
    step_.norm = gradient_norm(state_, gradients_, sharers,
                               1 / (step_.sums.count() * step_.seed_scale));
  if (sums) totals_.add_up(gradients_, scalars(), sharers);
}

bool Updates::are_finite(int part, int parts) const {
  const auto finite = [&](const FlatParameter& place, const ShardState& shard,
                          const Tensor& sum) {
    const int64_t from =
        std::max(shard.count * part / parts, place.offset - shard.begin);
    const int64_t to = std::min(shard.count * (part + 1) / parts,
                                place.offset + place.parameter.numel() - shard.begin);
    bool all = true;
    with_kept_type(shard.master.scalar_type(), [&](auto real) {
      std::vector<decltype(real)> widened;
      for (int64_t at = from; all && at < to; at += kStretch) {
        const int64_t count = std::min(kStretch, to - at);
        all = all_finite(widened_part(sum, at, count, widened), count);
      }
    });
    return all;
  };
  return std::ranges::all_of(state_.places(), [&](const FlatParameter& place) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (!bucket.trained) return true;
    if (!finite(place, bucket, gradients_.sum(place.bucket))) return false;
    return !bucket.mirror ||
           finite(place, *bucket.mirror, gradients_.mirrored_sum(place.bucket));
  });
}

}  // namespace cohort
