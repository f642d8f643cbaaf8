// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

namespace cohort {

// A file that host and device both compile, under the name it is included by.
struct DeviceText {
  const char* name;
  const char* text;
};

// What kernels are made of. The build writes it from the files themselves.
std::span<const DeviceText> device_texts();

// A kernel: a function of the texts that takes one struct (kernels/kernel_arguments.h).
struct KernelSpec {
  std::string function;   // "update<AdamW, float, Bfloat16>"
  std::string arguments;  // "UpdateArguments"
};

// What is compiled at once.
struct KernelProgram {
  std::string file;  // "updates": that in kernels/
  std::vector<KernelSpec> kernels;
};

// What profilers show of it: "cohort_update_AdamW_float_Bfloat16".
std::string kernel_name(const KernelSpec& kernel);
std::string text_of(const KernelProgram& program);

}  // namespace cohort
