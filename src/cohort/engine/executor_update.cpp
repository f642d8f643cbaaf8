// SPDX-License-Identifier: Apache-2.0
// The end of a step: sums of gradients are looked at, voted on, and change the weights.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/norm.h"
#include "cohort/engine/statistics.h"
#include "cohort/engine/timed.h"
#include "cohort/optim/gradient_norm.h"

namespace cohort {
namespace {

// Elements [at, at + count) in float32: where they are, or widened into `memory`.
const float* widen_part(const Tensor& sum, int64_t at, int64_t count,
                        std::vector<float>& memory) {
  const Tensor part = sum.narrow(0, at, count);
  if (sum.scalar_type() == at::kFloat) return part.const_data_ptr<float>();
  memory.resize(static_cast<size_t>(count));
  widen(sum.scalar_type(), part.const_data_ptr(), count, memory.data());
  return memory.data();
}

}  // namespace

// The loss was reduced before any bucket in the same lane, so its count is global.
StepScalars Executor::scalars() const {
  double scale = 1.0 / (sums_.count() * seed_scale());
  if (options_.clip > 0) scale *= clip_factor(norm_, options_.clip);
  return {.rate = rate_, .grad_scale = scale, .step = step_ + 1};
}

double Executor::seed_scale() const {
  return loss_scale_ ? loss_scale_->value() * mean_scale(options_.usual_count) : 1;
}

// Updates a stretch of this rank's share and hands the parameters to every other rank.
// The optimizer's state of a share is its owner's alone: nobody else reads it.
void Executor::visit_share(int bucket, int64_t begin, int64_t count, float* sum) {
  check_sum(bucket, begin, count, sum);
  BucketState& mine = state_.buckets()[bucket];
  update_range(rule_, mine.ranges, mine, begin, count, sum, scalars());
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
void Executor::check_sum(int bucket, int64_t begin, int64_t count, const float* sum) {
  if (all_finite(sum, count) || !not_finite_.empty()) return;
  for (const auto& place : state_.places()) {
    if (place.bucket != bucket) continue;
    const int64_t from = std::max(begin, place.offset);
    const int64_t to = std::min(begin + count, place.offset + place.parameter.numel());
    for (int64_t i = from; i < to; ++i) {
      if (std::isfinite(sum[i - begin])) continue;
      const auto rank = gradients_.blame(bucket, i);
      not_finite_ = text("[engine] step ", step_ + 1, ": the gradient of ", place.name,
                         rank ? text(" on rank ", *rank) : " (summed over ranks)",
                         " is ", sum[i - begin], kNotFiniteAdvice);
      return;
    }
  }
}

void Executor::update(int bucket) {
  if (skipped_) return;
  Timed timed(split_.update);
  const bool uploads = device_ && schedule_.shard == 0;
  settle_loss();
  if (device_) device_->settle(bucket);
  if (seal_) {
    require_sound(seal_->broken(bucket));
    require_sound(gradients_.broken_sum(bucket));
    seal_->open(bucket);
  }
  BucketState& state = state_.buckets()[bucket];
  update_share(bucket, state, gradients_.sum(bucket));
  if (state.mirror)
    update_share(bucket, *state.mirror, gradients_.mirrored_sum(bucket));
  updated_[bucket] = true;
  if (seal_) seal_->close(bucket);
  if (uploads) device_->upload(bucket);
}

void Executor::update_share(int bucket, ShareState& share, const Tensor& sum) {
  const BucketState& whole = state_.buckets()[bucket];
  const bool own = &share == &whole;
  const bool voted = standing_.phase != Standing::Phase::kBefore;  // they are finite
  const int64_t stretches = (share.count + kStretch - 1) / kStretch;
  std::vector<char> bad(static_cast<size_t>(stretches), 0);
  const auto update_stretch = [&](int64_t stretch, std::vector<float>& widened) {
    const int64_t at = stretch * kStretch;
    const int64_t count = std::min(kStretch, share.count - at);
    const float* gradient = widen_part(sum, at, count, widened);
    bad[stretch] = !voted && !all_finite(gradient, count);
    update_range(rule_, whole.ranges, share, share.begin + at, count, gradient,
                 scalars());
    if (own) state_.publish(bucket, at, count);
  };
  at::parallel_for(0, stretches, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> widened;
    for (int64_t i = begin; i < end; ++i) update_stretch(i, widened);
  });
  for (int64_t i = 0; i < stretches; ++i)
    if (bad[i]) check_stretch(bucket, share, sum, i * kStretch);
  if (!not_finite_.empty()) throw Error(ErrorKind::kBug, not_finite_);
}

void Executor::check_stretch(int bucket, const ShareState& share, const Tensor& sum,
                             int64_t at) {
  std::vector<float> widened;
  const int64_t count = std::min(kStretch, share.count - at);
  check_sum(bucket, share.begin + at, count, widen_part(sum, at, count, widened));
}

// The ranks have voted against a step of a run that does not leave steps out.
void Executor::stop_for_bad_sum() {
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i) {
    const BucketState& bucket = state_.buckets()[i];
    for (int64_t at = 0; bucket.trained && at < bucket.count; at += kStretch)
      check_stretch(i, bucket, gradients_.sum(i), at);
  }
  if (not_finite_.empty())
    not_finite_ =
        text("[engine] step ", step_ + 1,
             ": a gradient that another rank sums is no number", kNotFiniteAdvice);
  throw Error(ErrorKind::kBug, not_finite_);
}

void Executor::norm() {
  Timed timed(split_.update);
  settle_all();
  const bool cut = schedule_.shard > 0 && options_.communicate;
  norm_ = gradient_norm(state_, gradients_, cut ? groups_.shard : nullptr,
                        1 / (sums_.count() * seed_scale()));
}

// Padding between parameters is left out.
bool Executor::sums_are_finite(int part, int parts) const {
  std::vector<float> widened;
  const auto finite = [&](const Place& place, const ShareState& share,
                          const Tensor& sum) {
    const int64_t from =
        std::max(share.count * part / parts, place.offset - share.begin);
    const int64_t to = std::min(share.count * (part + 1) / parts,
                                place.offset + place.parameter.numel() - share.begin);
    for (int64_t at = from; at < to; at += kStretch) {
      const int64_t count = std::min(kStretch, to - at);
      if (!all_finite(widen_part(sum, at, count, widened), count)) return false;
    }
    return true;
  };
  return std::ranges::all_of(state_.places(), [&](const Place& place) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    if (!bucket.trained) return true;
    if (!finite(place, bucket, gradients_.sum(place.bucket))) return false;
    return !bucket.mirror ||
           finite(place, *bucket.mirror, gradients_.mirrored_sum(place.bucket));
  });
}

// Their sum came with the loss, so every rank finds the same, before it votes: nothing
// has changed, and whoever finishes a step that was voted on knows what was drawn.
void Executor::check_samples(const StepInput& input) {
  if (evaluating_ || !options_.communicate || std::exchange(as_expected_, true)) return;
  require_expected(input, sums_.drawn());
}

// From the call on peers may know of this vote; so whoever is cut off in it has voted.
//
// What a rank computed from memory that had changed is in everyone's sums. So before
// anybody votes, each has looked at the memory it computed with: whoever finds damage,
// or dies before it has looked, leaves a step that nobody voted on.
PendingWork Executor::vote() {
  settle_all();
  if (seal_) {
    require_sound(seal_->broken());
    require_sound_gradients();
    if (comm_.size() > 1 && options_.communicate) comm_.barrier().wait();
  }
  if (options_.faults) options_.faults->reach("engine.vote", comm_.rank());
  int64_t* const against = votes_.data_ptr<int64_t>();
  // What all have summed alike each rank looks at in part: the vote joins the findings.
  const bool alike = schedule_.shard == 0 && options_.communicate;
  *against =
      (alike ? sums_are_finite(comm_.rank(), comm_.size()) : sums_are_finite()) ? 0 : 1;
  standing_ = {.phase = Standing::Phase::kVoted, .against = *against > 0};
  const auto count = [this, against] {
    skipped_ = *against > 0;
    standing_ = {.phase = Standing::Phase::kDecided, .against = skipped_};
    if (skipped_ && !options_.leaves_out) stop_for_bad_sum();
  };
  if (comm_.size() == 1 || !options_.communicate) {
    count();
    return {};
  }
  return {comm_.all_reduce(votes_, ReduceOp::kSum), count};
}

// Who does not know the outcome of a vote looks at everything: whoever looked at the
// rest may be gone.
Standing Executor::standing() const {
  Standing now = standing_;
  if (now.phase == Standing::Phase::kVoted && !now.against)
    now.against = !sums_are_finite();
  return now;
}

// All that the step needs of others came before its vote (law 2).
StepResult Executor::finish(bool skip) {
  COHORT_CHECK(schedule_.elastic && standing_.phase != Standing::Phase::kBefore,
               "a step that was not voted on cannot be finished alone");
  if (standing_.phase == Standing::Phase::kCommitted) return result();
  skipped_ = skip;
  if (skipped_ && !options_.leaves_out) stop_for_bad_sum();
  for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
    if (state_.buckets()[i].trained && !updated_[i]) update(i);
  commit();
  return result();
}

void Executor::fold_buffers() {
  Timed timed(split_.update);
  if (device_) statistics_ = device_->to_host(statistics_);
  if (options_.communicate)
    statistics_ = gather_statistics(comm_, chain_.buffers(), statistics_, role_.slices);
}

void Executor::commit() {
  if (evaluating_) return;
  const c10::NoGradGuard no_grad;
  Timed timed(split_.update);
  settle_loss();
  if (!skipped_ && device_) device_->apply(statistics_);
  if (!skipped_ && !device_) {
    if (seal_) require_sound(seal_->broken(seal_->buffers()));
    apply_statistics(statistics_);
    if (seal_) seal_->close(seal_->buffers());
  }
  if (loss_scale_) loss_scale_->commit(!skipped_);
  standing_ = {.phase = Standing::Phase::kCommitted, .against = skipped_};
  batch_ = {};
}

}  // namespace cohort
