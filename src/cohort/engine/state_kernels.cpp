// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_kernels.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstring>

#include "cohort/engine/cuda/device_table.h"
#include "cohort/optim/adam.h"
#include "cohort/optim/gradient_norm.h"

namespace cohort {
namespace {

static_assert(kernels::kNormChunk == kNormChunk && kernels::kClipEps == kClipEps);

Tensor int_view(const Tensor& numbers, size_t offset) {
  return numbers.narrow(0, static_cast<int64_t>(offset), sizeof(int32_t))
      .view(at::kInt);
}

}  // namespace

StepNumbers step_numbers_of(const UpdateOptions& options, const StepScalars& scalars) {
  const auto adam =
      adam_step({.beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps},
                scalars.step);
  return {.rate = scalars.rate,
          .mean_scale = scalars.grad_scale,
          .grad_scale = scalars.grad_scale,
          .correction1 = adam.correction1,
          .correction2 = adam.correction2,
          .step = scalars.step};
}

Tensor make_step_numbers(at::Device device) {
  const Tensor numbers =
      at::zeros({sizeof(StepNumbers)}, at::TensorOptions(at::kByte).device(device));
  send_step_numbers(numbers, {});
  return numbers;
}

Tensor bytes_of(StepNumbers& numbers) {
  return at::from_blob(&numbers, {sizeof(StepNumbers)}, at::kByte);
}

void send_step_numbers(const Tensor& to, StepNumbers numbers) {
  to.copy_(bytes_of(numbers));
}

StepNumbers read_step_numbers(const Tensor& from) {
  const Tensor host = from.cpu();
  StepNumbers numbers;
  std::memcpy(&numbers, host.const_data_ptr(), sizeof numbers);
  return numbers;
}

Tensor gate_of(const Tensor& numbers) {
  return int_view(numbers, offsetof(StepNumbers, gate));
}

Tensor not_finite_of(const Tensor& numbers) {
  return int_view(numbers, offsetof(StepNumbers, not_finite));
}

Tensor StateKernels::chunk_table(std::span<const kernels::Chunk> chunks) const {
  return device_table(chunks, device());
}

Tensor StateKernels::tensor_table(
    std::span<const kernels::TensorChunks> tensors) const {
  return device_table(tensors, device());
}

}  // namespace cohort
