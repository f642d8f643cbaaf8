// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/gpu_peak.h"

#include <map>
#include <string>
#include <utility>

#include "cohort/comm/gather_records.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort {
namespace {

struct GpuPeak {
  std::string_view name;  // a part of it; the first that fits counts
  double half;            // bfloat16 and float16, dense
  double single;          // float32, without tf32
};

constexpr GpuPeak kPeaks[] = {
    {"H200", 989e12, 67e12},     {"H100 PCIe", 756e12, 51e12},
    {"H100 NVL", 835e12, 60e12}, {"H100", 989e12, 67e12},
    {"B200", 2250e12, 75e12},    {"A100", 312e12, 19.5e12},
    {"L40S", 362e12, 91.6e12},   {"V100", 125e12, 15.7e12},
    {"T4", 65e12, 8.1e12},
};

}  // namespace

std::optional<double> peak_flops(std::string_view gpu, at::ScalarType dtype) {
  for (const auto& peak : kPeaks) {
    if (gpu.find(peak.name) == std::string_view::npos) continue;
    return dtype == at::kFloat ? peak.single : peak.half;
  }
  return std::nullopt;
}

double flops_share(double flops_per_step, double step_seconds, double peak) {
  return flops_per_step / step_seconds / peak;
}

std::optional<double> peak_of_gpus(Communicator& comm, int gpu, at::ScalarType dtype) {
  const std::pair mine(cuda_device_id(gpu), cuda_device_name(gpu));
  const auto said =
      gather_records(text_exchange(comm), mine, "[train] a peer's GPU cannot be read");
  const std::map<std::string, std::string> names(said.begin(), said.end());
  double sum = 0;
  for (const auto& [id, name] : names) {
    const auto peak = peak_flops(name, dtype);
    if (!peak) return std::nullopt;
    sum += *peak;
  }
  return sum;
}

}  // namespace cohort
