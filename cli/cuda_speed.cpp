// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_speed.h"

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/train/gpu_peak.h"
#include "cohort/train/step_plan.h"

namespace cohort::cli {
namespace {

// Forwards that are made again are none of its steps': one slice for each rank, and
// all samples alike.
std::optional<StepFlops> count_flops(const CudaCase& bench, int64_t batch) {
  const auto needs = count_cuda_blocks(bench);
  if (!needs) return std::nullopt;
  return flops_of(Schedule(), *needs, static_cast<double>(batch));
}

}  // namespace

CudaSpeed speed_of(const CudaCase& bench, int64_t batch, double step_s,
                   std::optional<double> peak) {
  CudaSpeed speed;
  if (bench.tokens > 0)
    speed.tokens_per_second = static_cast<double>(batch * bench.tokens) / step_s;
  const auto flops = count_flops(bench, batch);
  if (!flops) return speed;
  speed.flops_per_step = flops->all;
  if (peak) speed.mfu = flops_share(flops->model, step_s, *peak);
  return speed;
}

std::string CudaSpeed::text() const {
  if (!mfu) return "";
  return cohort::text(", ", format_fixed(100 * *mfu, 1), " % of the GPU's peak");
}

void add_speed(const CudaSpeed& speed, JsonObject& row) {
  if (speed.tokens_per_second) row.add("tokens_per_second", *speed.tokens_per_second);
  if (speed.flops_per_step) row.add("flops_per_step", *speed.flops_per_step);
  if (speed.mfu) row.add("mfu", *speed.mfu);
}

}  // namespace cohort::cli
