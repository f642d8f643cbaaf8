// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_logits.h"

#include "cohort/core/error.h"
#include "cohort/engine/cuda/kernel_types.h"

namespace cohort {
namespace {

constexpr int kLogitWays = 2;  // for each dtype: forward, backward

}  // namespace

KernelProgram logit_program() {
  KernelProgram program{"logits", {}};
  for (const char* type : kKernelTypes)
    for (const char* way : {"row_numbers", "turn_into_gradient"})
      program.kernels.push_back({text(way, "<", type, ">"), "LogitArguments"});
  return program;
}

kernels::LogitArguments DeviceLogits::arguments_of(const Tensor& logits,
                                                   int64_t columns,
                                                   const Tensor& places,
                                                   const Tensor& log_sums) const {
  const auto is_row_by_row = [&](const Tensor& numbers) {
    return numbers.is_contiguous() && numbers.numel() == logits.size(0) &&
           numbers.device() == logits.device();
  };
  COHORT_CHECK(logits.dim() == 2 && logits.is_contiguous() &&
                   columns <= logits.size(1) && logits.device() == launcher_.device() &&
                   is_row_by_row(places) && is_row_by_row(log_sums),
               "logits of ", logits.sizes(), " with ", columns, " columns");
  return {.logits = logits.data_ptr(),
          .rows = logits.size(0),
          .columns = columns,
          .stride = logits.size(1),
          .places = places.const_data_ptr<int64_t>(),
          .log_sums = log_sums.data_ptr<double>(),
          .targets = nullptr,
          .counted = nullptr,
          .factor = nullptr};
}

void DeviceLogits::row_numbers(const Tensor& logits, int64_t columns,
                               const Tensor& places, const Tensor& log_sums,
                               const Tensor& targets) {
  auto arguments = arguments_of(logits, columns, places, log_sums);
  COHORT_CHECK(targets.is_contiguous() && targets.numel() == logits.size(0),
               targets.numel(), " targets of ", logits.size(0));
  arguments.targets = targets.data_ptr<double>();
  launch(0, logits, arguments);
}

void DeviceLogits::turn_into_gradient(const Tensor& logits, int64_t columns,
                                      const Tensor& places, const Tensor& log_sums,
                                      const Tensor& counted, const Tensor& factor) {
  auto arguments = arguments_of(logits, columns, places, log_sums);
  COHORT_CHECK(counted.is_contiguous() && counted.numel() == logits.size(0) &&
                   factor.numel() == 1,
               counted.numel(), " rows that count of ", logits.size(0));
  arguments.counted = counted.const_data_ptr<bool>();
  arguments.factor = factor.const_data_ptr<double>();
  launch(1, logits, arguments);
}

void DeviceLogits::launch(int way, const Tensor& logits,
                          const kernels::LogitArguments& arguments) {
  if (first_ < 0) first_ = launcher_.load(logit_program());
  launcher_.launch(first_ + kernel_type(logits.scalar_type()) * kLogitWays + way,
                   arguments.rows, &arguments);
}

}  // namespace cohort
