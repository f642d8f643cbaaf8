// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cohort::cli {

// How long one kernel of a device ran, all its launches together.
struct KernelTime {
  std::string name;  // short_name()
  int64_t launches = 0;
  double seconds = 0;
};

// What runs on devices of a kind while `work` does, in graphs too; longest first.
// `work` ends when all of it is done.
std::vector<KernelTime> kernel_times(c10::DeviceType device,
                                     const std::function<void()>& work);

// Without arguments and name spaces, and with the function that an elementwise kernel
// applies: "elementwise_kernel GeluCUDAKernelImpl".
std::string short_name(const std::string& kernel);

}  // namespace cohort::cli
