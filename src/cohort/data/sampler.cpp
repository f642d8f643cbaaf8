// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/sampler.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/data/permutation.h"

namespace cohort {
namespace {

void require_positive(const char* what, int64_t value) {
  if (value < 1) {
    throw ConfigError(
        text("[data.sampler] ", what, " is ", value, "; legal: 1 or more"));
  }
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require_positive("the size of the data set", options.size);
  require_positive("batch", options.batch);
  require_positive("slices", options.slices);
}

int64_t Sampler::steps_per_epoch() const {
  return (options_.size - 1) / options_.batch + 1;
}

Position Sampler::position(int64_t step) const {
  COHORT_CHECK(step >= 0, "step ", step);
  return {step / steps_per_epoch(), step % steps_per_epoch()};
}

int64_t Sampler::step(Position position) const {
  return position.epoch * steps_per_epoch() + position.step;
}

int64_t Sampler::batch_size(Position position) const {
  COHORT_CHECK(position.step >= 0 && position.step < steps_per_epoch(), "step ",
               position.step, " of ", steps_per_epoch(), " per epoch");
  return std::min(options_.batch, options_.size - position.step * options_.batch);
}

bool Sampler::is_whole(Position position) const {
  return batch_size(position) == std::min(options_.batch, options_.size);
}

SampleSum Sampler::batch_sum(Position position) const {
  const Permutation order(options_.seed, position.epoch, options_.size);
  std::vector<int64_t> ids(static_cast<size_t>(batch_size(position)));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = order(position.step * options_.batch + static_cast<int64_t>(i));
  return sum_samples(sample_key(options_.seed, position.epoch), ids);
}

std::vector<int64_t> Sampler::slice(Position position, int slice_index) const {
  COHORT_CHECK(slice_index >= 0 && slice_index < options_.slices, "slice ", slice_index,
               " of ", options_.slices);
  const int64_t m = batch_size(position);
  const int64_t shortest = m / options_.slices;
  const int64_t longer = m % options_.slices;
  const int64_t count = shortest + (slice_index < longer ? 1 : 0);
  const int64_t begin = position.step * options_.batch + slice_index * shortest +
                        std::min<int64_t>(slice_index, longer);

  const Permutation order(options_.seed, position.epoch, options_.size);
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = order(begin + i);
  return ids;
}

}  // namespace cohort
