// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/engine/cuda/kernel_launcher.h"
#include "cohort/engine/cuda/kernels/kernel_arguments.h"
#include "cohort/step/logit_kernels.h"

namespace cohort {

// For each dtype, row_numbers and turn_into_gradient.
KernelProgram logit_program();

// LogitKernels by launches. Borrows the launcher; its kernels are loaded when they are
// first used, which is before anything is captured.
class DeviceLogits final : public LogitKernels {
 public:
  explicit DeviceLogits(KernelLauncher& launcher) : launcher_(launcher) {}

  void row_numbers(const Tensor& logits, int64_t columns, const Tensor& places,
                   const Tensor& log_sums, const Tensor& targets) override;
  void turn_into_gradient(const Tensor& logits, int64_t columns, const Tensor& places,
                          const Tensor& log_sums, const Tensor& counted,
                          const Tensor& factor) override;

 private:
  kernels::LogitArguments arguments_of(const Tensor& logits, int64_t columns,
                                       const Tensor& places,
                                       const Tensor& log_sums) const;
  void launch(int way, const Tensor& logits, const kernels::LogitArguments& arguments);

  KernelLauncher& launcher_;
  int first_ = -1;  // number of the first kernel of logit_program(); -1: not loaded
};

}  // namespace cohort
