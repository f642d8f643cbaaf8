// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cohort {

struct LossScaleOptions {
  double initial = 65536;
  int64_t growth_steps = 2000;  // finite steps in a row before the scale grows
  double growth = 2;
  double backoff = 0.5;
};

// Sums over `count` samples overflow float16: the power of two that brings them near
// their mean, and so rounds nothing.
double mean_scale(double count);

// Dynamic loss scaling for float16 (Micikevicius et al. 2018), with the rule of
// PyTorch's GradScaler. The loss is multiplied with value() before backward, and the
// gradients with 1 / value() in the update; a step whose gradients are not finite is
// skipped and the scale falls, after many good ones it grows.
//
// Its state is two numbers, changed by commit() alone (law 1, docs/design.md).
class LossScale {
 public:
  // ConfigError unless initial > 0, growth_steps >= 1, growth >= 1, 0 < backoff < 1.
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return value_; }
  int64_t good_steps() const { return good_steps_; }  // since the last change

  // Every rank must pass the same: whether all gradients of the step were finite.
  void commit(bool finite);
  void restore(double value, int64_t good_steps);
  // Both numbers, bit by bit, and the way back. CheckpointError for another text.
  std::string saved() const;
  void restore(const std::string& saved);

 private:
  LossScaleOptions options_;
  double value_;
  int64_t good_steps_ = 0;
};

}  // namespace cohort
