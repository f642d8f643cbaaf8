// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/meter.h"

#include <cmath>
#include <limits>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Buckets of QuantileMeter span 1e-10 to 1e15; what is outside falls into the ends.
constexpr double kLowest = 1e-10;
constexpr double kHighest = 1e15;
constexpr double kLogGrowth = 0.009950330853168083;  // log(1.01)

size_t bucket_of(double value) {
  const double clamped = std::clamp(value, kLowest, kHighest);
  return static_cast<size_t>(std::log(clamped / kLowest) / kLogGrowth);
}

double middle_of(size_t bucket) {
  return kLowest * std::exp((static_cast<double>(bucket) + 0.5) * kLogGrowth);
}

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

void QuantileMeter::add(double value) {
  if (std::isnan(value)) return;
  const size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
}

double QuantileMeter::quantile(double q) const {
  COHORT_CHECK(q >= 0 && q <= 1, "quantile ", q);
  if (count_ == 0) return kNan;
  if (q == 0) return min_;
  if (q == 1) return max_;
  // The nearest-rank definition: the smallest value with at least q of all below.
  const auto rank = static_cast<int64_t>(std::ceil(q * static_cast<double>(count_)));
  int64_t seen = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) return std::clamp(middle_of(bucket), min_, max_);
  }
  return max_;
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
