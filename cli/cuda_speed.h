// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/cuda_case.h"
#include "cohort/core/json.h"

namespace cohort::cli {

// How fast steps of a benchmark on GPUs are, counted as `cohort train` counts it. What
// is not known is not there.
struct CudaSpeed {
  std::optional<double> tokens_per_second;
  std::optional<double> flops_per_step;  // on all ranks
  std::optional<double> mfu;             // 0..1

  std::string text() const;  // ", 46.1 % of the GPU's peak"; empty where mfu is
};

// `batch`: samples of all ranks. `peak`: FLOP per second that their GPUs could do.
CudaSpeed speed_of(const CudaCase& bench, int64_t batch, double step_s,
                   std::optional<double> peak);

void add_speed(const CudaSpeed& speed, JsonObject& row);

}  // namespace cohort::cli
