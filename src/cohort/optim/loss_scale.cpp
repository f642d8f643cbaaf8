// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/loss_scale.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>

#include "cohort/core/error.h"

namespace cohort {

double mean_scale(double count) {
  const auto samples = static_cast<uint64_t>(std::max(1.0, count));
  return 1 / static_cast<double>(std::bit_ceil(samples));
}

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options), value_(options.initial) {
  if (!(options.initial > 0) || options.growth_steps < 1 || !(options.growth >= 1) ||
      !(options.backoff > 0 && options.backoff < 1))
    throw ConfigError(cohort::text(
        "[optim] loss scale of ", options.initial, ", growth ", options.growth,
        " after ", options.growth_steps, " steps, backoff ", options.backoff,
        "; legal: above 0, 1 or more, 1 or more, between 0 and 1"));
}

void LossScale::commit(bool finite) {
  if (!finite) {
    value_ *= options_.backoff;
    good_steps_ = 0;
    return;
  }
  if (++good_steps_ < options_.growth_steps) return;
  // The scale is a float32 where it meets the loss.
  const double grown = value_ * options_.growth;
  if (grown <= std::numeric_limits<float>::max()) value_ = grown;
  good_steps_ = 0;
}

std::string LossScale::saved() const {
  char digits[64];
  std::snprintf(digits, sizeof digits, "%a %lld", value_,
                static_cast<long long>(good_steps_));
  return digits;
}

void LossScale::restore(const std::string& saved) {
  double value = 0;
  long long good_steps = 0;
  const int read = std::sscanf(saved.c_str(), "%la %lld", &value, &good_steps);
  if (read != 2 || !(value > 0) || good_steps < 0)
    throw CheckpointError(
        text("[optim] loss scale '", saved, "'; legal: a positive number and a count"));
  restore(value, good_steps);
}

void LossScale::restore(double value, int64_t good_steps) {
  value_ = value;
  good_steps_ = good_steps;
}

}  // namespace cohort
