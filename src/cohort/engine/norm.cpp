// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <span>

#include "cohort/engine/sum.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

// Adds what this rank holds of one parameter; `chunks` are those of its part.
void add_squares(const FlatParameter& place, const BucketState& bucket,
                 const Tensor& sum, double* chunks) {
  const int64_t numel = place.parameter.numel();
  const auto [first, last] = held_chunks(place, bucket);
  const auto square = [&](int64_t begin, int64_t end, auto real) {
    std::vector<decltype(real)> widened;
    for (int64_t c = begin; c < end; ++c) {
      const int64_t count = std::min(kChunk, numel - c * kChunk);
      const int64_t at = place.offset + c * kChunk - bucket.begin;
      square_sums(widened_part(sum, at, count, widened), count,
                  std::span(chunks + c, 1));
    }
  };
  at::parallel_for(first, last, kChunksAtOnce, [&](int64_t begin, int64_t end) {
    with_kept_type(sum.scalar_type(), [&](auto real) { square(begin, end, real); });
  });
}

}  // namespace

// Where all of a rank's replicas have the same, one of them speaks for it. A mirror
// along a pipeline is of another stage, and a part of a tensor of another rank: there
// all must know of all.
Sharers sharers_of(const Schedule& schedule, const RankGroups& groups,
                   bool communicate) {
  const bool meets = schedule.group_along(kDataAxes) != kNone;
  const bool cut = schedule.shard > 0 && meets && communicate;
  const bool alone = schedule.stages.empty() && groups.parts == 1;
  if (alone || !communicate) return {.group = cut ? groups.shard : nullptr};
  const Communicator* const others = cut ? groups.replicate : groups.dp;
  return {.group = groups.world,
          .counts = !others || others->rank() == 0,
          .part = groups.part,
          .parts = groups.parts};
}

int64_t chunks_of(const FlatParameter& place) {
  return padded(place.parameter.numel()) / kChunk;
}

int64_t rows_of(const FlatParameter& place, int parts) {
  return chunks_of(place) * (place.is_cut() ? parts : 1);
}

int64_t first_row(const FlatParameter& place, int part) {
  return place.is_cut() ? chunks_of(place) * part : 0;
}

ChunkRange held_chunks(const FlatParameter& place, const ShardState& shard) {
  const int64_t chunks = chunks_of(place);
  const auto clamp = [&](int64_t element) {
    return std::clamp((element - place.offset) / kChunk, int64_t{0}, chunks);
  };
  return {clamp(shard.begin), clamp(shard.begin + shard.count)};
}

double gradient_norm(const FlatState& state, const GradientSums& gradients,
                     const Sharers& sharers, double scale) {
  int64_t chunks = 0;
  for (const auto& place : state.places()) chunks += rows_of(place, sharers.parts);
  Tensor squares = at::zeros({chunks}, at::kDouble);
  double* at = squares.data_ptr<double>();
  for (const auto& place : state.places()) {
    const BucketState& bucket = state.buckets()[place.bucket];
    if (bucket.trained && bucket.counts && sharers.count(place))
      add_squares(place, bucket, gradients.sum(place.bucket),
                  at + first_row(place, sharers.part));
    at += rows_of(place, sharers.parts);
  }
  if (sharers.group)  // others have zeros
    sharers.group->all_reduce(squares, ReduceOp::kSum).wait();
  return norm_of(
      std::span(squares.const_data_ptr<double>(), static_cast<size_t>(chunks)), scale);
}

}  // namespace cohort
