// SPDX-License-Identifier: Apache-2.0
#include "cli/step_options.h"

#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort::cli {
namespace {

constexpr int kExactSlices = 8;

at::ScalarType dtype_of(const std::string& name, at::ScalarType automatic) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return automatic;
}

}  // namespace

GeneratorOptions step_options(const Config& config, bool exact) {
  const auto compute = dtype_of(config.get_string("precision"), at::kFloat);
  const bool half = compute == at::kHalf;
  GeneratorOptions options;
  options.slices = static_cast<int>(config.get_int("slices"));
  if (exact && options.slices == 0) options.slices = kExactSlices;
  options.bucket_bytes =
      parse_bytes(config.get_string("step.bucket_bytes"), "step.bucket_bytes");
  options.clip = config.get_float("optim.clip") > 0;
  options.vote = half || config.get_string("elastic") == "on" ||
                 config.get_string("nan") == "skip";
  options.recompute = config.get_bool("step.recompute");
  options.prefetch = static_cast<int>(config.get_int("step.prefetch"));
  options.offload = config.get_string("step.offload") == "optimizer";
  options.offload_parameters = config.get_string("step.offload") == "parameters";
  options.exact = exact;
  options.precision = {
      .compute = compute,
      .reduce = dtype_of(config.get_string("dtype.reduce"), compute),
      .accumulate = dtype_of(config.get_string("dtype.accumulate"), at::kFloat)};
  if (exact && options.precision.accumulate != at::kFloat)
    throw ConfigError(text("[step] dtype.accumulate=",
                           config.get_string("dtype.accumulate"),
                           " with --exact; legal: float32, auto"));
  return options;
}

CheckOptions check_options(const Config& config) {
  const std::string& limit = config.get_string("memory.limit");
  return {.memory_limit = limit.empty() ? 0 : parse_bytes(limit, "memory.limit"),
          .elastic = config.get_string("elastic") == "on"};
}

}  // namespace cohort::cli
