// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/optim/loss_scale.h"
#include "cohort/tensor.h"

namespace cohort {

// LossScale in the memory of a device, where a step that nobody waits for reads and
// changes it; and the gradient of the loss that backward begins with. In other types
// than float16 that is 1, and there is no scale. Thread safety: none.
class DeviceLossScale {
 public:
  // ConfigError as LossScale has it.
  DeviceLossScale(const LossScaleOptions& options, at::ScalarType compute,
                  at::Device device);

  const Tensor& seed() const { return seed_; }
  // For a step over so many samples.
  void begin_step(double count);
  // `gate`, one int32, is 0 for a step that is left out; where `counts`, one bool, is
  // not set that says nothing.
  void commit(const Tensor& gate, const Tensor& counts);

  // As LossScale has them; empty where there is no scale.
  std::string saved() const;
  void restore(const std::string& text);

 private:
  LossScaleOptions options_;
  bool is_used_;
  Tensor scale_, good_steps_, seed_;
};

}  // namespace cohort
