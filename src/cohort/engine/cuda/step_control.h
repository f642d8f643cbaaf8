// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/core/tensor.h"

namespace cohort {

// The numbers of a step that change while its graph stays: one small piece of device
// memory, which the host writes the first two of and the step itself the others. Each
// is a view of one element, float32 unless it says otherwise.
struct StepControl {
  explicit StepControl(at::Device device, double initial_loss_scale);

  // Starts the transfer of what the host decides; does not wait.
  void send(double rate, int64_t step);

  Tensor all;
  Tensor rate;
  Tensor step;  // counted from 1
  Tensor loss_scale;
  Tensor good_steps;  // since the last change of the loss scale; int32
  Tensor skip;        // 1: a gradient was not finite, so nothing may change
  Tensor unscale;     // what the summed gradient is multiplied with
  Tensor loss;        // summed over samples
  Tensor norm;        // of the gradient, where it is clipped
};

}  // namespace cohort
