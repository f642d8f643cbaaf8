// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/tensor_totals.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "cohort/engine/sum.h"
#include "cohort/step/generator.h"

namespace cohort {

TensorTotals::TensorTotals(const FlatState& state, const UpdateRule& rule)
    : state_(state), rule_(rule), width_(rule.reductions()) {
  totals_.resize(state.places().size() * static_cast<size_t>(width_));
}

// In the same order on every rank, also of what this one has no shard of.
template <typename Do>
void TensorTotals::for_each_tensor(const Do& what) const {
  for (size_t b = 0; b < state_.buckets().size(); ++b)
    for (const auto& range : state_.buckets()[b].ranges)
      if (range.traits.adapts) what(state_.buckets()[b], range, static_cast<int>(b));
}

void TensorTotals::add_up(const GradientSums& gradients, const StepScalars& scalars,
                          const Sharers& sharers) {
  int64_t rows = 0;
  for_each_tensor([&](const BucketState&, const ParameterRange& range, int) {
    rows += rows_of(state_.places()[range.place], sharers.parts);
  });
  if (rows == 0) return;
  Tensor sums = at::zeros({rows * width_}, at::kDouble);
  double* at = sums.data_ptr<double>();
  for_each_tensor(
      [&](const BucketState& bucket, const ParameterRange& range, int number) {
        const FlatParameter& place = state_.places()[range.place];
        if (bucket.trained && bucket.counts && sharers.count(place))
          reduce(bucket, range, gradients.sum(number), scalars,
                 at + first_row(place, sharers.part) * width_);
        at += rows_of(place, sharers.parts) * width_;
      });
  if (sharers.group)  // others have zeros
    sharers.group->all_reduce(sums, ReduceOp::kSum).wait();
  at = sums.data_ptr<double>();
  for_each_tensor([&](const BucketState&, const ParameterRange& range, int) {
    const int64_t count = rows_of(state_.places()[range.place], sharers.parts) * width_;
    add_chunks(std::span(at, static_cast<size_t>(count)),
               std::span(&totals_[range.place * width_], static_cast<size_t>(width_)));
    at += count;
  });
}

// Adds what this rank holds of one tensor; `chunks` are those of its part.
void TensorTotals::reduce(const BucketState& bucket, const ParameterRange& range,
                          const Tensor& sum, const StepScalars& scalars,
                          double* chunks) const {
  const auto [first, last] = held_chunks(state_.places()[range.place], bucket);
  at::parallel_for(first, last, kChunksAtOnce, [&](int64_t begin, int64_t end) {
    with_kept_type(bucket.master.scalar_type(), [&](auto real) {
      reduce_chunks<decltype(real)>(bucket, range, sum, scalars, {begin, end}, chunks);
    });
  });
}

template <typename Real>
void TensorTotals::reduce_chunks(const BucketState& bucket, const ParameterRange& range,
                                 const Tensor& sum, const StepScalars& scalars,
                                 ChunkRange those, double* chunks) const {
  const FlatParameter& place = state_.places()[range.place];
  std::vector<const Real*> states(bucket.states.size());
  std::vector<Real> widened;
  for (int64_t chunk = those.begin; chunk < those.end; ++chunk) {
    const int64_t at = place.offset + chunk * kChunk - bucket.begin;
    const int64_t count = std::min(kChunk, place.parameter.numel() - chunk * kChunk);
    for (size_t k = 0; k < states.size(); ++k)
      states[k] = bucket.states[k].const_data_ptr<Real>() + at;
    rule_.reduce({bucket.master.const_data_ptr<Real>() + at,
                  widened_part(sum, at, count, widened), states, count},
                 range.traits, scalars,
                 std::span(chunks + chunk * width_, static_cast<size_t>(width_)));
  }
}

std::span<const double> TensorTotals::of(int place) const {
  if (place == kNone || width_ == 0) return {};
  return {&totals_[place * width_], static_cast<size_t>(width_)};
}

template <typename Real>
void update_range(const UpdateRule& rule, const std::vector<ParameterRange>& ranges,
                  ShardState& shard, int64_t begin, int64_t count, const Real* gradient,
                  const TensorTotals& totals, const StepScalars& scalars) {
  Real* const master = shard.master.data_ptr<Real>();
  for (const auto& range : ranges) {
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(begin + count, range.end);
    if (from >= to) continue;
    std::vector<Real*> states;
    for (auto& state : shard.states)
      states.push_back(state.data_ptr<Real>() + (from - shard.begin));
    rule.apply(
        {master + (from - shard.begin), gradient + (from - begin), states, to - from},
        range.traits, totals.of(range.place), scalars);
  }
}

template void update_range(const UpdateRule&, const std::vector<ParameterRange>&,
                           ShardState&, int64_t, int64_t, const float*,
                           const TensorTotals&, const StepScalars&);
template void update_range(const UpdateRule&, const std::vector<ParameterRange>&,
                           ShardState&, int64_t, int64_t, const double*,
                           const TensorTotals&, const StepScalars&);

}  // namespace cohort
