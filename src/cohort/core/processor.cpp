// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/processor.h"

#include <ATen/ATen.h>

#include <cstdlib>

#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {

std::string blas_processor(std::string_view cpuinfo) {
  constexpr std::string_view kNeoverseV1 = "CPU part\t: 0xd40";
  return cpuinfo.find(kNeoverseV1) == std::string_view::npos ? "" : "1";
}

void describe_processor() {
#ifdef __aarch64__
  std::string type;
  try {
    type = blas_processor(read_file("/proc/cpuinfo", ErrorKind::kBug));
  } catch (const Error&) {
    return;  // nothing is known, so nothing is said
  }
  if (!type.empty()) ::setenv("NVPL_BLAS_DEBUG_CPU_TYPE", type.c_str(), 0);
#endif
}

void settle_vector_math() { at::zeros({1}).sin(); }

}  // namespace cohort
