// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/device_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"

namespace cohort {

DeviceNorm::DeviceNorm(const FlatState& state, const StateHome& home,
                       const UpdateRule& rule, const RankGroups& groups)
    : state_(state),
      home_(home),
      part_(groups.part),
      parts_(groups.parts),
      chunks_(state.buckets().size()) {
  lay_out_squares();
  if (rule.reductions() > 0) lay_out_sums(rule.reductions());
}

Tensor DeviceNorm::zeros(at::IntArrayRef shape) const {
  return at::zeros(shape, at::TensorOptions(at::kDouble).device(home_.device()));
}

void DeviceNorm::lay_out_squares() {
  std::vector<std::vector<kernels::Chunk>> tables(chunks_.size());
  int64_t row = 0;
  for (const auto& place : state_.places()) {
    const BucketState& bucket = state_.buckets()[place.bucket];
    const auto [first, last] = held_chunks(place, bucket);
    const bool counts =
        bucket.trained && bucket.own && bucket.counts && place.is_told_by(part_);
    for (int64_t c = first; counts && c < last; ++c)
      tables[place.bucket].push_back(
          {.begin = place.offset + c * kChunk - bucket.begin,
           .count = std::min(kChunk, place.parameter.numel() - c * kChunk),
           .slot = row + first_row(place, part_) + c});
    row += rows_of(place, parts_);
  }
  for (size_t b = 0; b < tables.size(); ++b)
    if (!tables[b].empty()) chunks_[b] = home_.kernels->chunk_table(tables[b]);
  squares_ = zeros({row});
}

// Each part has rows of its own; where all have the same, those of the first count.
void DeviceNorm::lay_out_sums(int64_t width) {
  std::vector<kernels::TensorChunks> tensors;
  int64_t row = 0;
  for (const auto& bucket : state_.buckets())
    for (const auto& range : bucket.ranges) {
      if (!range.traits.adapts) continue;
      const FlatParameter& place = state_.places()[range.place];
      const int64_t chunks = chunks_of(place);
      adapting_.push_back({range.place, row + chunks * part_});
      tensors.push_back({row, rows_of(place, parts_)});
      row += chunks * parts_;
    }
  if (tensors.empty()) return;
  tensors_ = home_.kernels->tensor_table(tensors);
  sums_ = zeros({row, width});
  totals_ = zeros({static_cast<int64_t>(tensors.size()), width});
}

std::vector<UpdateRange> DeviceNorm::ranges_of(int index,
                                               const ShardState& shard) const {
  const BucketState& bucket = state_.buckets()[index];
  std::vector<UpdateRange> ranges;
  for (const auto& range : bucket.ranges) {
    int64_t end = range.end;
    UpdateRange mine{.traits = range.traits};
    if (range.traits.adapts) {
      const FlatParameter& place = state_.places()[range.place];
      const auto found = std::ranges::find(adapting_, range.place, &Adapting::place);
      COHORT_CHECK(found != adapting_.end(), place.name, " has no sums");
      end = place.offset + place.parameter.numel();
      mine.place = found - adapting_.begin();
      mine.slot = found->first + held_chunks(place, shard).begin;
    }
    mine.begin = std::max(range.begin, shard.begin) - shard.begin;
    mine.end = std::min(end, shard.begin + shard.count) - shard.begin;
    if (mine.begin < mine.end) ranges.push_back(mine);
  }
  return ranges;
}

// Others have zeros.
void DeviceNorm::measure(const GradientSums& gradients, const Sharers& sharers,
                         double limit, const Tensor& numbers) {
  if (sharers.group) squares_.zero_();
  for (size_t b = 0; b < chunks_.size(); ++b)
    if (chunks_[b].defined() && sharers.counts)
      home_.kernels->square_sums(gradients.sum(static_cast<int>(b)), chunks_[b],
                                 squares_);
  if (sharers.group) sharers.group->all_reduce(squares_, ReduceOp::kSum).join();
  home_.kernels->norm(squares_, limit, numbers);
}

void DeviceNorm::add_up(const Sharers& sharers, const Reduce& reduce) {
  if (!tensors_.defined()) return;
  if (sharers.group) sums_.zero_();
  for (size_t b = 0; b < chunks_.size(); ++b)
    if (chunks_[b].defined() && sharers.counts) reduce(static_cast<int>(b), sums_);
  if (sharers.group) sharers.group->all_reduce(sums_, ReduceOp::kSum).join();
  home_.kernels->add_chunks(sums_, tensors_, totals_);
}

}  // namespace cohort
