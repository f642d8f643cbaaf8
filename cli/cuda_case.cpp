// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_case.h"

#include <ATen/ATen.h>

#include <array>

#include "cli/bench_parts.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/nn/models.h"

namespace cohort::cli {
namespace {

Chain make_gpu_resnet50() { return make_resnet({}, {}); }
Chain make_small_resnet50() {
  return make_resnet({.classes = 10, .small_images = true}, {});
}

constexpr std::array<CudaCase, 2> kCudaCases = {
    {{"resnet50", 256, 224, 1000, make_gpu_resnet50},
     {"resnet50-cifar", 256, 32, 10, make_small_resnet50}}};

at::ScalarType dtype_of(const std::string& precision) {
  const at::ScalarType dtype = parse_dtype(precision, at::ScalarType::Undefined);
  if (dtype != at::ScalarType::Undefined) return dtype;
  throw ConfigError(
      text("[bench] --precision ", precision, "; legal: float32, bf16, fp16"));
}

}  // namespace

const CudaCase& find_cuda_case(const std::string& name) {
  return find_case(kCudaCases, name, " for GPUs");
}

Batch cuda_shapes(const CudaCase& bench, int64_t samples) {
  const auto meta = at::TensorOptions(at::kMeta);
  return Batch::of(
      {{"input", at::empty({samples, 3, bench.pixels, bench.pixels}, meta)},
       {"target", at::empty({samples}, meta.dtype(at::kLong))}});
}

Batch cuda_batch(const CudaCase& bench, int64_t samples, int gpu) {
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  const Tensor input = at::randn({samples, 3, bench.pixels, bench.pixels});
  const Tensor target = at::arange(samples).remainder(bench.classes);
  return Batch::of({{"input", input.to(device)}, {"target", target.to(device)}});
}

GeneratorOptions cuda_step(const BenchTrainArgs& args, int ranks, MemoryIn memory) {
  return {.slices = ranks,
          .vote = true,
          .precision = {.compute = dtype_of(args.precision)},
          .memory = memory,
          .optimizer_states = 1};
}

UpdateOptions cuda_update() { return {.momentum = 0.9}; }

}  // namespace cohort::cli
