// SPDX-License-Identifier: Apache-2.0
#include "cli/step_setting.h"

#include "cli/exit_of_error.h"
#include "cli/launch_command.h"
#include "cli/model_outline.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/launch/agent.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/slices.h"
#include "cohort/train/checked_recipe.h"

namespace cohort::cli {
namespace {

Config resolve(const Recipe& recipe, const StepArgs& args) {
  Config config = recipe.defaults();
  take_settings(args.config, args.set, config);
  return config;
}

GeneratorOptions options_of(const Recipe& recipe, const Config& config,
                            const Layout& layout, bool exact) {
  GeneratorOptions options = step_options(config, exact);
  options.pipeline.costs = block_seconds(config);
  options.slices = slices_for(options.slices, layout, config.get_int("batch"));
  require_slices(config.get_int("batch"), options.slices);
  const auto rule = make_update_rule(update_options(recipe, config));
  options.tensor_sums = rule->reductions() > 0;
  options.optimizer_states = static_cast<int>(rule->states().size());
  return options;
}

}  // namespace

double StepSetting::samples(int64_t batch) const {
  return static_cast<double>((batch + options.slices - 1) / options.slices);
}

std::string StepSetting::layout_text() const {
  std::string out =
      text("dp=", layout.dp, layout.tp > 1 ? text(",tp=", layout.tp) : "",
           layout.pp > 1 ? text(",pp=", layout.pp) : "", ",shard=", layout.shard);
  if (layout.replicate > 1) out += text(",replicate=", layout.replicate);
  return out;
}

Chain StepSetting::make_chain(int rank) const {
  return checked_chain(*recipe, config, tensor_part(config, layout, rank));
}

Chain StepSetting::make_form() const {
  const ModelsFilledLater guard;
  return make_chain(/*rank=*/0);
}

StepSetting setting_of(const StepArgs& args, const RecipeList& recipes) {
  const Recipe& recipe = recipes.find(args.recipe);
  return setting_of(args, recipe, resolve(recipe, args));
}

StepSetting setting_of(const StepArgs& args, const Recipe& recipe, Config config) {
  StepSetting setting{.recipe = &recipe, .config = std::move(config)};
  setting.layout = parse_layout(args.layout, parse_ranks(args.ranks));
  setting.options = options_of(recipe, setting.config, setting.layout, args.exact);
  // Ranks of one node do, unless they are told to talk otherwise.
  setting.options.shares_memory =
      args.links.empty() && (args.backend == "auto" || args.backend == "shm");
  // Only a device has state elsewhere; what is measured runs on processors.
  const bool offloads = setting.options.offload || setting.options.offload_parameters;
  if (offloads && args.measure == 0) {
    setting.options.memory = MemoryIn::kDevice;
    setting.options.shares_memory = false;
  }
  generate({}, setting.layout, setting.options);  // what cannot be is refused at once
  return setting;
}

Schedule schedule_of(const StepSetting& setting, std::vector<BlockSpec> specs,
                     std::span<const BlockMeasure> measures, int64_t batch) {
  require_seconds_of(static_cast<int>(specs.size()), setting.options.pipeline.costs,
                     setting.config);
  set_bytes(measures, setting.samples(batch), setting.options.precision.compute, specs);
  return generate(specs, setting.layout, setting.options);
}

int launch_ranks(const StepSetting& setting, const std::string& backend, bool json,
                 const std::function<int()>& rank) {
  require_blocks(*setting.recipe, setting.config, setting.options, setting.layout);
  setting.recipe->prepare(setting.config);
  LaunchOptions options;
  options.ranks = setting.layout.world();
  options.threads =
      setting.options.exact ? 1 : static_cast<int>(setting.config.get_int("threads"));
  options.pin = backend != "gloo";
  options.json = json;
  options.body = as_rank(rank);
  return launch(options).exit_code;
}

}  // namespace cohort::cli
