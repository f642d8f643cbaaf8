// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_case.h"

#include <ATen/ATen.h>

#include <array>

#include "cli/bench_parts.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/engine/block_count.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/mesh.h"

namespace cohort::cli {
namespace {

Chain make_gpu_resnet50(const TensorPart& part) {
  require_whole_layers("resnet50", part.size);
  return make_resnet({}, {});
}
Chain make_small_resnet50(const TensorPart& part) {
  require_whole_layers("resnet50-cifar", part.size);
  return make_resnet({.classes = 10, .small_images = true}, {});
}
Chain make_gpt124m(const TensorPart& part) {
  return make_gpt(gpt_options("124M"), {.tensor = part});
}

Batch images(int64_t count, int64_t pixels, int64_t classes, at::Device device) {
  return Batch::of(
      {{"input", at::randn({count, 3, pixels, pixels}, device)},
       {"target",
        at::randint(classes, {count}, at::TensorOptions(at::kLong).device(device))}});
}
Batch large_images(int64_t count, at::Device device) {
  return images(count, 224, 1000, device);
}
Batch small_images(int64_t count, at::Device device) {
  return images(count, 32, 10, device);
}

constexpr int64_t kGptTokens = 1024, kGptVocabulary = 50257;

Batch token_rows(int64_t count, at::Device device) {
  const auto row = [&] {
    return at::randint(kGptVocabulary, {count, kGptTokens},
                       at::TensorOptions(at::kLong).device(device));
  };
  return Batch::of({{"tokens", row()}, {"target", row()}});
}

constexpr std::array<CudaCase, 3> kCudaCases = {
    {{"resnet50", 256, make_gpu_resnet50, large_images},
     {"resnet50-cifar", 256, make_small_resnet50, small_images},
     {"gpt", 64, make_gpt124m, token_rows, kGptTokens, "adamw", 1.0}}};

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

Batch cuda_batch(const CudaCase& bench, int64_t samples, int gpu) {
  return bench.samples(samples,
                       at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
}

TensorPart cuda_part(const Layout& layout, int rank) {
  return {.rank = Mesh(layout).coordinate(rank, Axis::kTensor), .size = layout.tp};
}

void require_parts(const CudaCase& bench, const Layout& layout) {
  if (layout.tp == 1) return;
  const ModelsWithoutMemory shapes_alone;
  bench.make(cuda_part(layout, 0));
}

std::string layout_words(const Layout& layout) {
  return text(layout.tp > 1 ? text("tp=", layout.tp, ", ") : "",
              layout.pp > 1 ? text("pp=", layout.pp, ", ") : "",
              "shard=", layout.shard);
}

GeneratorOptions cuda_step(const CudaCase& bench, const BenchTrainArgs& args, int ranks,
                           MemoryIn memory) {
  const auto rule = make_update_rule(cuda_update(bench));
  return {.slices = ranks,
          .clip = bench.clip > 0,
          .vote = true,
          .precision = {.compute = dtype_of(args.precision)},
          .memory = memory,
          .optimizer_states = static_cast<int>(rule->states().size())};
}

UpdateOptions cuda_update(const CudaCase& bench) {
  return {.name = bench.rule, .momentum = 0.9};
}

std::optional<std::vector<BlockMeasure>> count_cuda_blocks(const CudaCase& bench,
                                                           const TensorPart& part) {
  constexpr int64_t kCountedSamples = 2;
  const ModelsWithoutMemory shapes_alone;
  const auto counts = count_blocks(
      bench.make(part), [&](int64_t count) { return bench.samples(count, at::kMeta); },
      kCountedSamples);
  if (!counts) return std::nullopt;
  return needs_of(*counts);
}

}  // namespace cohort::cli
