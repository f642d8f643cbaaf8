// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cohort {

struct RateOptions {
  std::string name = "constant";
  double base = 0.05;
  int64_t warmup_steps = 0;  // the rate climbs linearly over the first steps

  // How the rate follows the batch: none, linear (k times the batch, k times the
  // rate; Goyal et al. 2017) or sqrt. `batch` is the global batch, so the rate does
  // not depend on how many ranks share it.
  std::string scale = "none";
  double batch = 1;
  double reference_batch = 1;  // the one `base` was tuned for
};

// The learning rate as a pure function of the step, so that a resumed run needs no
// state for it.
class RateSchedule {
 public:
  // ConfigError for an unknown name or scale.
  explicit RateSchedule(const RateOptions& options);

  // `step` is counted from 0.
  double at(int64_t step) const;
  double peak() const { return peak_; }

 private:
  RateOptions options_;
  double peak_;
};

}  // namespace cohort
