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
  for_each_tensor([&](const BucketState&, const ParameterRange& range, int) {
    chunks_ += chunks_of(state_.places()[range.place]);
  });
}

// In the same order on every rank, also of what this one has no share of.
template <typename Do>
void TensorTotals::for_each_tensor(const Do& what) const {
  for (size_t b = 0; b < state_.buckets().size(); ++b)
    for (const auto& range : state_.buckets()[b].ranges)
      if (range.traits.adapts) what(state_.buckets()[b], range, static_cast<int>(b));
}

void TensorTotals::add_up(const GradientSums& gradients, const StepScalars& scalars,
                          const Sharers& sharers) {
  if (chunks_ == 0) return;
  Tensor sums = at::zeros({chunks_ * width_}, at::kDouble);
  double* at = sums.data_ptr<double>();
  for_each_tensor(
      [&](const BucketState& bucket, const ParameterRange& range, int number) {
        if (bucket.trained && sharers.counts)
          reduce(bucket, range, gradients.sum(number), scalars, at);
        at += chunks_of(state_.places()[range.place]) * width_;
      });
  if (sharers.group)  // others have zeros
    sharers.group->all_reduce(sums, ReduceOp::kSum).wait();
  at = sums.data_ptr<double>();
  for_each_tensor([&](const BucketState&, const ParameterRange& range, int) {
    const int64_t count = chunks_of(state_.places()[range.place]) * width_;
    add_chunks(std::span(at, static_cast<size_t>(count)),
               std::span(&totals_[range.place * width_], static_cast<size_t>(width_)));
    at += count;
  });
}

// Adds what this rank holds of one tensor; `chunks` are those of the whole one.
void TensorTotals::reduce(const BucketState& bucket, const ParameterRange& range,
                          const Tensor& sum, const StepScalars& scalars,
                          double* chunks) const {
  const Place& place = state_.places()[range.place];
  const auto [first, last] = held_chunks(place, bucket);
  const auto reduce_chunk = [&](int64_t chunk, std::vector<const float*>& states,
                                std::vector<float>& widened) {
    const int64_t at = place.offset + chunk * kChunk - bucket.begin;
    const int64_t count = std::min(kChunk, place.parameter.numel() - chunk * kChunk);
    for (size_t k = 0; k < states.size(); ++k)
      states[k] = bucket.states[k].const_data_ptr<float>() + at;
    rule_.reduce({bucket.master.const_data_ptr<float>() + at,
                  widened_part(sum, at, count, widened), states, count},
                 range.traits, scalars,
                 std::span(chunks + chunk * width_, static_cast<size_t>(width_)));
  };
  at::parallel_for(first, last, kChunksAtOnce, [&](int64_t begin, int64_t end) {
    std::vector<const float*> states(bucket.states.size());
    std::vector<float> widened;
    for (int64_t i = begin; i < end; ++i) reduce_chunk(i, states, widened);
  });
}

std::span<const double> TensorTotals::of(int place) const {
  if (place == kNone || width_ == 0) return {};
  return {&totals_[place * width_], static_cast<size_t>(width_)};
}

void update_range(const UpdateRule& rule, const std::vector<ParameterRange>& ranges,
                  ShareState& share, int64_t begin, int64_t count,
                  const float* gradient, const TensorTotals& totals,
                  const StepScalars& scalars) {
  float* const master = share.master.data_ptr<float>();
  for (const auto& range : ranges) {
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(begin + count, range.end);
    if (from >= to) continue;
    std::vector<float*> states;
    for (auto& state : share.states)
      states.push_back(state.data_ptr<float>() + (from - share.begin));
    rule.apply(
        {master + (from - share.begin), gradient + (from - begin), states, to - from},
        range.traits, totals.of(range.place), scalars);
  }
}

}  // namespace cohort
