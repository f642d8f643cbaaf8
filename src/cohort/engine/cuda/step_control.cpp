// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/step_control.h"

#include <ATen/ATen.h>

namespace cohort {
namespace {

constexpr int64_t kControlNumbers = 8;

Tensor number(const Tensor& all, int64_t index) { return all.narrow(0, index, 1); }

}  // namespace

StepControl::StepControl(at::Device device, double initial_loss_scale)
    : all(at::zeros({kControlNumbers}, at::TensorOptions(at::kFloat).device(device))),
      rate(number(all, 0)),
      step(number(all, 1)),
      loss_scale(number(all, 2).fill_(initial_loss_scale)),
      good_steps(number(all, 3).view(at::kInt)),
      skip(number(all, 4)),
      unscale(number(all, 5)),
      loss(number(all, 6)),
      norm(number(all, 7)) {}

// Pinned memory is only used again when the transfer from it is done: LibTorch's
// allocator sees to that.
void StepControl::send(double new_rate, int64_t new_step) {
  Tensor numbers = at::empty(
      {2}, at::TensorOptions(at::kFloat).pinned_memory(all.device().is_cuda()));
  auto* const values = numbers.mutable_data_ptr<float>();
  values[0] = static_cast<float>(new_rate);
  values[1] = static_cast<float>(new_step);
  all.narrow(0, 0, 2).copy_(numbers, /*non_blocking=*/true);
}

}  // namespace cohort
