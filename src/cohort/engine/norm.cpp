// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/norm.h"

#include <algorithm>
#include <span>

#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

// Of what this rank holds of one parameter; `chunks` are those of the whole one.
void add_squares(const Place& place, const BucketState& bucket, const Tensor& sum,
                 double* chunks) {
  std::vector<float> widened(kChunk);
  const int64_t numel = place.parameter.numel();
  for (int64_t at = 0; at < numel; at += kChunk) {
    const int64_t element = place.offset + at - bucket.begin;
    if (element < 0 || element >= bucket.count) continue;
    const int64_t count = std::min(kChunk, numel - at);
    const Tensor part = sum.narrow(0, element, count);
    widen(sum.scalar_type(), part.const_data_ptr(), count, widened.data());
    square_sums(widened.data(), count, std::span(chunks + at / kChunk, 1));
  }
}

}  // namespace

double gradient_norm(const FlatState& state, const GradientSums& gradients,
                     const Sharers& sharers, double scale) {
  int64_t chunks = 0;
  for (const auto& place : state.places())
    chunks += padded(place.parameter.numel()) / kChunk;
  Tensor squares = at::zeros({chunks}, at::kDouble);
  double* at = squares.data_ptr<double>();
  for (const auto& place : state.places()) {
    const BucketState& bucket = state.buckets()[place.bucket];
    if (bucket.trained && sharers.counts)
      add_squares(place, bucket, gradients.sum(place.bucket), at);
    at += padded(place.parameter.numel()) / kChunk;
  }
  if (sharers.group)  // others have zeros
    sharers.group->all_reduce(squares, ReduceOp::kSum).wait();
  return norm_of(
      std::span(squares.const_data_ptr<double>(), static_cast<size_t>(chunks)), scale);
}

}  // namespace cohort
