// SPDX-License-Identifier: Apache-2.0
#include "cli/step_options.h"

#include "cohort/core/parse.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/slices.h"

namespace cohort::cli {
namespace {

at::ScalarType dtype_of(const std::string& name, at::ScalarType automatic) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return automatic;
}

Precision precision_of(const Config& config) {
  const auto compute = dtype_of(config.get_string("precision"), at::kFloat);
  return {.compute = compute,
          .reduce = dtype_of(config.get_string("dtype.reduce"), compute),
          .accumulate = dtype_of(config.get_string("dtype.accumulate"), at::kFloat)};
}

int states_of(const Config& config) {
  const auto rule = make_update_rule({.name = config.get_string("optim.name"),
                                      .momentum = config.get_float("optim.momentum")});
  return static_cast<int>(rule->states().size());
}

}  // namespace

GeneratorOptions generator_options(const Config& config, int ranks, bool exact) {
  const auto given = static_cast<int>(config.get_int("slices"));
  const int slices = given > 0 ? given : exact ? kExactSlices : ranks;
  slices_of(0, ranks, slices);
  const bool fp16 = config.get_string("precision") == "fp16";
  return {.slices = slices,
          .bucket_bytes =
              parse_bytes(config.get_string("step.bucket_bytes"), "step.bucket_bytes"),
          .clip = config.get_float("optim.clip") > 0,
          .vote = fp16 || config.get_string("elastic") == "on" ||
                  config.get_string("nan") == "skip",
          .recompute = config.get_bool("step.recompute"),
          .prefetch = static_cast<int>(config.get_int("step.prefetch")),
          .offload = config.get_string("step.offload") == "optimizer",
          .exact = exact,
          .precision = precision_of(config),
          .optimizer_states = states_of(config)};
}

CheckOptions check_options(const Config& config) {
  const std::string& limit = config.get_string("memory.limit");
  return {.memory_limit = limit.empty() ? 0 : parse_bytes(limit, "memory.limit"),
          .elastic = config.get_string("elastic") == "on"};
}

}  // namespace cohort::cli
