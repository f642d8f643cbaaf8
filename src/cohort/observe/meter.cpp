// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/meter.h"

#include <cmath>
#include <limits>

namespace cohort {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void MeanMeter::add(double value, double weight) {
  if (weight == 0) return;  // 0 * NaN of an empty batch would spoil the sum
  sum_ += value * weight;
  weight_ += weight;
}

double MeanMeter::mean() const { return weight_ > 0 ? sum_ / weight_ : kNan; }

void EmaMeter::add(double value) {
  value_ = empty_ ? value : value_ + smoothing_ * (value - value_);
  empty_ = false;
}

double EmaMeter::value() const { return empty_ ? kNan : value_; }

void RateMeter::add(double items, double seconds) {
  if (calls_++ == warmup_) items_ = seconds_ = 0;
  items_ += items;
  seconds_ += seconds;
  recent_items_.add(items);
  recent_seconds_.add(seconds);
}

double RateMeter::total() const { return seconds_ > 0 ? items_ / seconds_ : kNan; }

double RateMeter::recent() const {
  const double seconds = recent_seconds_.value();
  return seconds > 0 ? recent_items_.value() / seconds : kNan;
}

StepSplit& StepSplit::operator+=(const StepSplit& other) {
  data += other.data;
  forward += other.forward;
  backward += other.backward;
  wait += other.wait;
  update += other.update;
  return *this;
}

StepSplit StepSplit::operator/(double divisor) const {
  return {data / divisor, forward / divisor, backward / divisor, wait / divisor,
          update / divisor};
}

void SplitMeter::add(const StepSplit& split) {
  if (steps_++ == warmup_) sum_ = {};
  sum_ += split;
}

StepSplit SplitMeter::mean() const {
  const int64_t counted = steps_ > warmup_ ? steps_ - warmup_ : steps_;
  return counted > 0 ? sum_ / static_cast<double>(counted) : StepSplit{};
}

}  // namespace cohort
