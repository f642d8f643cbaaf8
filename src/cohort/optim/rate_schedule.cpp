// SPDX-License-Identifier: Apache-2.0
#include "cohort/rate_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"

namespace cohort {
namespace {

double scale_factor(const RateOptions& options) {
  const double ratio = options.batch / options.reference_batch;
  if (options.scale == "none") return 1;
  if (options.scale == "linear") return ratio;
  if (options.scale == "sqrt") return std::sqrt(ratio);
  throw ConfigError(
      text("[optim] schedule.scale '", options.scale, "'; legal: none, linear, sqrt"));
}

// How far `step` is on the way from `begin` to the end of `length` steps: 0 to 1.
double way(int64_t step, int64_t begin, int64_t length) {
  if (length <= 0) return step < begin ? 0 : 1;
  const double t = static_cast<double>(step - begin) / static_cast<double>(length);
  return std::clamp(t, 0.0, 1.0);
}

int64_t decay_length(const RateOptions& o) { return o.total_steps - o.warmup_steps; }

double constant(const RateOptions&, int64_t) { return 1; }

double step_wise(const RateOptions& o, int64_t step) {
  return std::pow(o.gamma, static_cast<double>((step - o.warmup_steps) / o.step_every));
}

double cosine(const RateOptions& o, int64_t step) {
  const double t = way(step, o.warmup_steps, decay_length(o));
  return o.floor + (1 - o.floor) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

double linear(const RateOptions& o, int64_t step) {
  return 1 - (1 - o.floor) * way(step, o.warmup_steps, decay_length(o));
}

double stable_decay(const RateOptions& o, int64_t step) {
  return 1 - (1 - o.floor) * way(step, o.total_steps - o.decay_steps, o.decay_steps);
}

void require(bool good, std::string_view what, double given, std::string_view legal) {
  if (!good)
    throw ConfigError(text("[optim] schedule.", what, " ", given, "; legal: ", legal));
}

RateOptions completed(RateOptions options) {
  require(options.warmup_steps >= 0, "warmup_steps",
          static_cast<double>(options.warmup_steps), "0 or more");
  require(options.step_every >= 0, "step_every",
          static_cast<double>(options.step_every), "0 or more");
  require(options.decay_steps >= 0, "decay_steps",
          static_cast<double>(options.decay_steps), "0 or more");
  require(options.gamma > 0, "gamma", options.gamma, "above 0");
  require(options.floor >= 0 && options.floor <= 1, "floor", options.floor, "0 to 1");
  const int64_t rest = std::max<int64_t>(1, decay_length(options));
  if (options.step_every == 0) options.step_every = (rest + 2) / 3;
  if (options.decay_steps == 0) options.decay_steps = (options.total_steps + 9) / 10;
  // A line that begins before the warm-up ends would make the rate jump.
  options.decay_steps = std::min(options.decay_steps, rest);
  return options;
}

}  // namespace

struct RateSchedule::Shape {
  std::string_view name;
  Factor factor;
};

const RateSchedule::Shape& RateSchedule::find_shape(const std::string& name) {
  static constexpr std::array<Shape, 6> all = {{{"constant", constant},
                                                {"step", step_wise},
                                                {"cosine", cosine},
                                                {"linear", linear},
                                                {"warmup-stable-decay", stable_decay},
                                                {"wsd", stable_decay}}};
  std::array<std::string_view, all.size()> legal;
  std::string list;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return all[i];
    legal[i] = all[i].name;
    list += text(i > 0 ? ", " : "", legal[i]);
  }
  throw ConfigError(text("[optim] schedule.name '", name,
                         "'; nearest: ", nearest(name, legal), "; legal: ", list));
}

RateSchedule::RateSchedule(const RateOptions& options)
    : options_(completed(options)),
      peak_(options.base * scale_factor(options)),
      factor_(find_shape(options.name).factor) {
  if (factor_ != constant)
    require(options.total_steps > 0, "total_steps",
            static_cast<double>(options.total_steps),
            text("1 or more for ", options.name));
}

double RateSchedule::at(int64_t step) const {
  if (options_.own) {
    const double rate = options_.own(step, options_.total_steps);
    require(std::isfinite(rate) && rate >= 0, "own", rate, "0 or more");
    return rate;
  }
  if (step < options_.warmup_steps)
    return peak_ *
           (static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps));
  return peak_ * factor_(options_, step);
}

}  // namespace cohort
