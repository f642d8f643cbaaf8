// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

struct LossScaleOptions {
  bool dynamic = false;     // off: the scale is 1
  double initial = 65536;   // powers of two, so that scaling rounds nothing
  int64_t growth_steps = 2000;
};

// What the loss is multiplied with, so that small gradients survive float16: halved
// when a step was skipped, doubled after many good ones. Changes only at commit.
class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options)
      : options_(options), scale_(options.dynamic ? options.initial : 1) {}

  double value() const { return scale_; }

  void commit(bool skipped) {
    if (!options_.dynamic) return;
    good_steps_ = skipped ? 0 : good_steps_ + 1;
    if (skipped && scale_ > kLeast) scale_ /= 2;
    if (good_steps_ == options_.growth_steps) {
      good_steps_ = 0;
      if (scale_ < kMost) scale_ *= 2;
    }
  }

 private:
  static constexpr double kLeast = 0x1p-14;
  static constexpr double kMost = 0x1p24;

  LossScaleOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
};

}  // namespace cohort
