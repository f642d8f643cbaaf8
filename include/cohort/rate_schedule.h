// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace [[gnu::visibility("default")]] cohort {

// The learning rate of a step, counted from 0, of so many in all. A pure function, or a
// run that is gone on with is another. Each rank calls it for itself, and all must get
// the same.
using RateFunction = std::function<double(int64_t step, int64_t total_steps)>;

struct RateOptions {
  // What the rate does after the warm-up:
  //   constant              stays
  //   step                  times `gamma` every `step_every` steps
  //   cosine                half a cosine down to the floor
  //   linear                a straight line down to the floor
  //   warmup-stable-decay   stays, then a straight line in the last `decay_steps`
  //                         (wsd is short for it)
  std::string name = "constant";
  double base = 0.05;
  int64_t warmup_steps = 0;  // the rate climbs linearly over the first steps

  // How the rate follows the batch: none, linear (k times the batch, k times the
  // rate; Goyal et al. 2017) or sqrt. `batch` is the global batch, so the rate does
  // not depend on how many ranks share it.
  std::string scale = "none";
  double batch = 1;
  double reference_batch = 1;  // the one `base` was tuned for

  // Where a decay ends, warm-up included; the rate stays there afterwards. Every
  // schedule but the constant one needs it, and a run that is stopped and gone on
  // with must name the same.
  int64_t total_steps = 0;
  int64_t step_every = 0;  // 0: a third of the steps after the warm-up
  double gamma = 0.1;
  int64_t decay_steps = 0;  // 0: a tenth of total_steps
  double floor = 0;         // where cosine, linear and wsd end, over the peak

  // A rate of one's own, whatever is said above.
  RateFunction own = nullptr;
};

// The learning rate as a pure function of the step, so that a resumed run needs no
// state for it. Equal to PyTorch's StepLR, CosineAnnealingLR and LinearLR, behind a
// LinearLR of the warm-up by SequentialLR.
//
// It keeps a copy of the options, `own` with what that holds. Thread safety: immutable;
// at() may be called from several threads at once if `own` may.
class RateSchedule {
 public:
  // ConfigError for an unknown name or scale, and for numbers out of range.
  explicit RateSchedule(const RateOptions& options);

  // `step` is counted from 0. ConfigError for one of one's own that is no number, or
  // negative.
  double at(int64_t step) const;
  double peak() const { return peak_; }

 private:
  using Factor = double (*)(const RateOptions& options, int64_t step);
  struct Shape;
  static const Shape& find_shape(const std::string& name);

  RateOptions options_;
  double peak_;
  Factor factor_;  // what the peak is multiplied by, after the warm-up
};

}  // namespace cohort
