// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/rate_schedule.h"

#include <cmath>

#include "cohort/core/error.h"

namespace cohort {
namespace {

double scale_factor(const RateOptions& options) {
  const double ratio = options.batch / options.reference_batch;
  if (options.scale == "none") return 1;
  if (options.scale == "linear") return ratio;
  if (options.scale == "sqrt") return std::sqrt(ratio);
  throw ConfigError(text("[optim] schedule.scale '", options.scale,
                         "'; legal: none, linear, sqrt"));
}

}  // namespace

RateSchedule::RateSchedule(const RateOptions& options)
    : options_(options), peak_(options.base * scale_factor(options)) {
  if (options.name != "constant")
    throw ConfigError(text("[optim] schedule.name '", options.name,
                           "'; legal: constant (step, cosine, linear and "
                           "warmup-stable-decay come with a later release)"));
}

double RateSchedule::at(int64_t step) const {
  if (step < options_.warmup_steps)
    return peak_ * static_cast<double>(step + 1) /
           static_cast<double>(options_.warmup_steps);
  return peak_;
}

}  // namespace cohort
