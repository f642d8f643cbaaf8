// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_command.h"

#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/launch_command.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/nn/without_memory.h"
#include "cohort/train/checked_recipe.h"
#include "cohort/train/layout_oracle.h"

namespace cohort::cli {
namespace {

constexpr int kVerifyBatch = 8;

void make_small(Config& config) {
  for (const char* key : {"batch", "slices"})
    config.set(key, std::to_string(kVerifyBatch), "cohort verify");
  config.set("data.synthetic", "true", "cohort verify");
}

Config config_of(const Recipe& recipe, const VerifyArgs& args) {
  Config config = recipe.defaults();
  make_small(config);
  take_settings(args.config, args.set, config);
  return config;
}

// A rule that keeps a moment of the gradient shows it; where the run has none that
// does, gradients are compared under sgd.
UpdateOptions rule_of(const Recipe& recipe, const Config& config) {
  UpdateOptions update = update_options(recipe, config);
  if (make_update_rule(update)->states().empty())
    return {.name = "sgd", .momentum = 0.9, .nesterov = update.nesterov};
  return update;
}

OracleOptions oracle_options(const Recipe& recipe, const Config& config,
                             const Dataset& data, bool exact) {
  const ExecutorOptions execute = executor_options(config);
  return {
      .make_chain =
          [&](const TensorPart& part) { return checked_chain(recipe, config, part); },
      .data = &data,
      .batch = config.get_int("batch"),
      .slices = static_cast<int>(config.get_int("slices")),
      .seed = static_cast<uint64_t>(config.get_int("seed")),
      .update = rule_of(recipe, config),
      .decay = execute.decay,
      .clip = execute.clip,
      .rate = config.get_float("optim.lr"),
      .exact = exact};
}

DataSets load_here(const Recipe& recipe, const Config& config) {
  const auto loading = begin_loading(recipe, config, /*reader=*/true);
  return finish_loading(recipe, *loading, nullptr);
}

int blocks_of(const Recipe& recipe, const Config& config) {
  const ModelsWithoutMemory guard;
  return static_cast<int>(checked_chain(recipe, config, {}).blocks.size());
}

// Those that the model can be cut for.
std::vector<LayoutCase> all_cases(const VerifyArgs& args, const Recipe& recipe,
                                  const Config& config) {
  const auto slices = static_cast<int>(config.get_int("slices"));
  const auto every = every_layout(args.most_ranks, blocks_of(recipe, config), slices);
  std::vector<LayoutCase> cases;
  for (size_t i = 0; i < every.size(); i += static_cast<size_t>(args.every)) {
    const LayoutCase& one = every[i];
    try {
      const ModelsWithoutMemory guard;
      checked_chain(recipe, config, {.size = one.layout.tp, .sequence = one.sequence});
      cases.push_back(one);
    } catch (const ConfigError&) {
    }
  }
  return cases;
}

LayoutCase case_of(const VerifyArgs& args, const Recipe& recipe, const Config& config) {
  GeneratorOptions step = step_options(config, args.exact);
  step.pipeline.costs = block_seconds(config);
  const Layout layout = parse_layout(args.layout, parse_ranks(args.ranks));
  if (layout.pp > 1)  // with one stage they are refused whatever they are
    require_seconds_of(blocks_of(recipe, config), step.pipeline.costs, config);
  return {.layout = layout,
          .pipeline = step.pipeline,
          .sequence = config.get_bool("model.sequence_parallel"),
          .recompute = step.recompute};
}

void tell(const VerifyArgs& args, const LayoutCase& one, const Verdict& verdict,
          std::ostream& out) {
  const bool equal = !verdict.deviation;
  if (args.json) {
    nlohmann::ordered_json row = {
        {"layout", one.text()}, {"equal", equal}, {"largest", verdict.largest}};
    if (!equal) row["deviation"] = verdict.deviation->text();
    out << row.dump() << std::endl;
    return;
  }
  out << (equal ? "equal     " : "DIFFERENT ") << one.text();
  if (equal && !args.exact) out << "   " << verdict.largest;
  if (!equal) out << "\n  " << verdict.deviation->text();
  out << std::endl;
}

}  // namespace

Verdict verify_one(const VerifyArgs& args, const Recipe& recipe, const Config& given) {
  Config config = given;
  make_small(config);
  const DataSets data = load_here(recipe, config);
  return LayoutOracle(oracle_options(recipe, config, *data.train, args.exact))
      .compare(case_of(args, recipe, config));
}

int run_verify(const VerifyArgs& args, const RecipeList& recipes, std::ostream& out) {
  const Recipe& recipe = recipes.find(args.recipe);
  const Config config = config_of(recipe, args);
  if (args.all && !args.layout.empty())
    throw ConfigError("[verify] --layout with --all; legal: one of them");
  const auto cases = args.all ? all_cases(args, recipe, config)
                              : std::vector{case_of(args, recipe, config)};
  at::set_num_threads(1);
  const DataSets data = load_here(recipe, config);
  LayoutOracle oracle(oracle_options(recipe, config, *data.train, args.exact));
  int different = 0;
  double largest = 0;
  for (const auto& one : cases) {
    const Verdict verdict = oracle.compare(one);
    different += verdict.deviation ? 1 : 0;
    largest = std::max(largest, verdict.largest);
    tell(args, one, verdict, out);
  }
  if (!args.json && args.all)
    out << cases.size() << " layouts, " << different << " different; largest deviation "
        << largest << (args.exact ? "" : " (bound 1e-9)") << std::endl;
  return different > 0 ? 1 : 0;
}

}  // namespace cohort::cli
