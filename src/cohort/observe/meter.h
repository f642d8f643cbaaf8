// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

// Small accumulators. None is for two threads at once. What has seen no value gives
// NaN, which JSON writes as null.

// Mean of values with weights: add(loss_sum / count, count).
class MeanMeter {
 public:
  void add(double value, double weight = 1);
  double mean() const;
  double weight() const { return weight_; }
  void reset() { *this = {}; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// Exponential moving average; the first value counts in full.
class EmaMeter {
 public:
  explicit EmaMeter(double smoothing = 0.3) : smoothing_(smoothing) {}
  void add(double value);
  double value() const;

 private:
  double smoothing_;  // share of the newest value
  double value_ = 0;
  bool empty_ = true;
};

// Items per second. total() leaves out the first `warmup` calls: they compile,
// allocate and fill caches.
class RateMeter {
 public:
  explicit RateMeter(int64_t warmup = 0, double smoothing = 0.3)
      : warmup_(warmup), recent_seconds_(smoothing), recent_items_(smoothing) {}
  void add(double items, double seconds);
  // Over everything after the warm-up; during it, over what there is.
  double total() const;
  // Over the last few calls, for a progress line.
  double recent() const;

 private:
  int64_t warmup_;
  int64_t calls_ = 0;
  double items_ = 0;
  double seconds_ = 0;
  EmaMeter recent_seconds_;
  EmaMeter recent_items_;
};

// Where the seconds of a step went.
struct StepSplit {
  double data = 0;  // waiting for the next batch
  double forward = 0;
  double backward = 0;
  double wait = 0;  // for other ranks
  double update = 0;

  double sum() const { return data + forward + backward + wait + update; }
  StepSplit& operator+=(const StepSplit& other);
  StepSplit operator/(double divisor) const;
};

// Mean split of the steps after a warm-up.
class SplitMeter {
 public:
  explicit SplitMeter(int64_t warmup = 0) : warmup_(warmup) {}
  void add(const StepSplit& split);
  // Zeros before the first step; during the warm-up, of what there is.
  StepSplit mean() const;
  int64_t steps() const { return steps_; }

 private:
  int64_t warmup_;
  int64_t steps_ = 0;
  StepSplit sum_;
};

}  // namespace cohort
