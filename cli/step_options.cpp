// SPDX-License-Identifier: Apache-2.0
#include "cli/step_options.h"

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/parse.h"
#include "cohort/step/cost_table.h"

namespace cohort::cli {
namespace {

constexpr int kExactSlices = 8;

// None: the keys say which one. Recipes outlive what is made of them.
std::function<std::unique_ptr<UpdateRule>()> own_rule(const Recipe& recipe,
                                                      const Config& config) {
  if (!recipe.make_rule(config)) return nullptr;
  return [&recipe, config] { return recipe.make_rule(config); };
}

}  // namespace

at::ScalarType parse_dtype(const std::string& name, at::ScalarType otherwise) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  return otherwise;
}

GeneratorOptions step_options(const Config& config, bool exact) {
  const auto compute = parse_dtype(config.get_string("precision"), at::kFloat);
  const bool half = compute == at::kHalf;
  GeneratorOptions options;
  options.slices = static_cast<int>(config.get_int("slices"));
  if (exact && options.slices == 0) options.slices = kExactSlices;
  options.bucket_bytes =
      parse_bytes(config.get_string("step.bucket_bytes"), "step.bucket_bytes");
  options.clip = config.get_float("optim.clip") > 0;
  options.vote = half || config.get_string("nan") == "skip";
  options.elastic = config.get_string("elastic") == "on";
  options.recompute =
      BlockChoice::parse(config.get_string("step.recompute"), "step.recompute");
  options.prefetch = static_cast<int>(config.get_int("step.prefetch"));
  options.offload = config.get_string("step.offload") == "optimizer";
  options.offload_parameters = config.get_string("step.offload") == "parameters";
  options.pipeline = parse_pipeline(
      {.schedule = config.get_string("pipeline.schedule"),
       .stages_per_place = static_cast<int>(config.get_int("pipeline.virtual")),
       .cut = config.get_string("pipeline.cut"),
       .speeds = config.get_string("pipeline.speeds")});
  options.exact = exact;
  options.precision = {
      .compute = compute,
      .reduce = parse_dtype(config.get_string("dtype.reduce"), compute),
      .accumulate = parse_dtype(config.get_string("dtype.accumulate"), at::kFloat)};
  if (exact && options.precision.accumulate != at::kFloat)
    throw ConfigError(
        text("[step] dtype.accumulate=", config.get_string("dtype.accumulate"),
             " with --exact; legal: float32, auto"));
  if (options.precision.accumulate != at::kFloat &&
      options.precision.accumulate != compute)
    throw ConfigError(
        text("[step] dtype.accumulate=", config.get_string("dtype.accumulate"),
             " with precision=", config.get_string("precision"),
             "; legal: float32, auto, or the type of the precision"));
  return options;
}

CostTable read_costs(const std::string& path) {
  const std::string table = read_file(path, ErrorKind::kConfig);
  try {
    return costs_from_csv(table);
  } catch (const ConfigError& error) {
    throw ConfigError(text(error.what(), " (in ", path, ")"));
  }
}

std::vector<double> block_seconds(const Config& config) {
  const std::string& file = config.get_string("pipeline.costs");
  if (file.empty()) return {};
  const std::string& cut = config.get_string("pipeline.cut");
  if (trim(cut) != "auto")
    throw ConfigError(text("[step] pipeline.costs=", file, " with pipeline.cut=", cut,
                           "; legal: one of them"));
  const CostTable costs = read_costs(file);
  if (costs.blocks.empty())
    throw ConfigError(text("[step] pipeline.costs=", file,
                           " has no blocks; legal: a table of costs with rows forward "
                           "and backward, as of cohort step --measure --costs-out"));
  std::vector<double> seconds;
  for (const auto& block : costs.blocks) {
    const double samples = costs.samples;
    seconds.push_back(block.forward.seconds(samples) + block.input().seconds(samples) +
                      block.weight().seconds(samples));
    if (seconds.back() <= 0)
      throw ConfigError(text("[step] pipeline.costs=", file, ": block ",
                             seconds.size() - 1,
                             " takes no time; legal: a table with "
                             "rows forward and backward of each block"));
  }
  return seconds;
}

void require_seconds_of(int blocks, std::span<const double> seconds,
                        const Config& config) {
  if (seconds.empty() || static_cast<int>(seconds.size()) == blocks) return;
  throw ConfigError(text("[step] pipeline.costs=", config.get_string("pipeline.costs"),
                         " has ", seconds.size(), " blocks, and the model ", blocks,
                         "; legal: a table of costs of this model's blocks"));
}

UpdateOptions update_options(const Recipe& recipe, const Config& config) {
  const auto real = [&](const char* key) { return config.get_float(key); };
  return {.name = config.get_string("optim.name"),
          .momentum = real("optim.momentum"),
          .nesterov = config.get_bool("optim.nesterov"),
          .beta1 = real("optim.beta1"),
          .beta2 = real("optim.beta2"),
          .eps = real("optim.eps"),
          .trust = real("optim.trust"),
          .own = own_rule(recipe, config)};
}

ExecutorOptions executor_options(const Config& config) {
  return {.decay = {.weight_decay = config.get_float("optim.weight_decay"),
                    .no_decay = config.get_string("optim.no_decay")},
          .clip = config.get_float("optim.clip"),
          .seed = static_cast<uint64_t>(config.get_int("seed")),
          .loss_scale = {.initial = config.get_float("loss_scale.initial"),
                         .growth_steps = config.get_int("loss_scale.growth_steps")},
          .usual_count = static_cast<double>(config.get_int("batch")),
          .skips_bad_steps = config.get_string("precision") == "fp16" ||
                             config.get_string("nan") == "skip"};
}

void take_settings(const std::string& file, const std::vector<std::string>& set,
                   Config& config) {
  if (!file.empty()) config.load_file(file);
  for (const auto& assignment : set) config.set_assignment(assignment);
}

CheckOptions check_options(const Config& config) {
  const std::string& limit = config.get_string("memory.limit");
  return {.memory_limit = limit.empty() ? 0 : parse_bytes(limit, "memory.limit"),
          .elastic = config.get_string("elastic") == "on"};
}

}  // namespace cohort::cli
