// SPDX-License-Identifier: Apache-2.0
#include "cli/step_command.h"

#include <ATen/Parallel.h>

#include <ostream>

#include "cli/launch_command.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/engine/block_measure.h"
#include "cohort/observe/trace.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/step/renderer.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/step_trace.h"
#include "recipes/recipe.h"

namespace cohort::cli {
namespace {

// Where nothing is known of the blocks: a forward of a millisecond each.
CostTable plain_costs(const Schedule& schedule) {
  int blocks = 0;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions) blocks = std::max(blocks, action.block + 1);
  CostTable costs = guess_costs({}, 1);
  costs.blocks.assign(static_cast<size_t>(blocks),
                      {{.fixed = 1e-3}, {.fixed = 2e-3}, {.fixed = 1e-3}});
  return costs;
}

void read_step(const StepArgs& args, StepView& view) {
  ScheduleFile file = from_csv(read_file(args.from, ErrorKind::kConfig));
  view.name = args.from;
  view.schedule = std::move(file.schedule);
  view.measured = std::move(file.times);
  for (const auto& group : view.schedule.groups)
    view.layout += text(view.layout.empty() ? "" : ",", group.name, "=", group.size);
  view.report = check(view.schedule);
  view.costs = plain_costs(view.schedule);
  view.costs_from = "assumed: 1 ms a forward, 2 ms a backward";
}

std::string short_layout(const Layout& layout) {
  std::string out = text("dp=", layout.dp, ",shard=", layout.shard);
  if (layout.replicate > 1) out += text(",replicate=", layout.replicate);
  return out;
}

Config resolve(const Recipe& recipe, const StepArgs& args) {
  Config config = recipe.defaults();
  if (!args.config.empty()) config.load_file(args.config);
  for (const auto& assignment : args.set) config.set_assignment(assignment);
  return config;
}

GeneratorOptions options_of(const Config& config, const Layout& layout, bool exact) {
  GeneratorOptions options = step_options(config, exact);
  if (options.slices == 0) options.slices = layout.dp;
  require_slices(config.get_int("batch"), options.slices);
  const auto rule = make_update_rule({.name = config.get_string("optim.name"),
                                      .momentum = config.get_float("optim.momentum")});
  options.optimizer_states = static_cast<int>(rule->states().size());
  return options;
}

// Runs the blocks here, on a few samples of the right form that need no files.
void measure(const Recipe& recipe, Config config, const Chain& chain,
             const GeneratorOptions& options, std::vector<BlockSpec>& specs,
             CostTable& costs) {
  config.set("data.synthetic", "true", "cohort step");
  const DataSets data = recipe.load(config, /*reader=*/true)->finish(nullptr);
  at::set_num_threads(1);
  const auto measures = measure_blocks(chain, *data.train);
  set_bytes(measures, costs.samples, options.precision.compute, specs);
  for (size_t b = 0; b < specs.size(); ++b) costs.blocks[b] = measures[b].seconds;
}

void make_step(const StepArgs& args, StepView& view) {
  const Recipe& recipe = find_recipe(args.recipe);
  const Config config = resolve(recipe, args);
  const Layout layout = parse_layout(args.layout, parse_ranks(args.ranks));
  const GeneratorOptions options = options_of(config, layout, args.exact);
  const Chain chain = recipe.make_chain(config);
  std::vector<BlockSpec> specs = specs_of(chain);
  generate(specs, layout, options);  // what cannot be made is refused at once
  const int64_t samples =
      (config.get_int("batch") + options.slices - 1) / options.slices;
  view.costs = guess_costs(specs, static_cast<double>(samples));
  measure(recipe, config, chain, options, specs, view.costs);
  view.name = args.recipe;
  view.layout = short_layout(layout);
  view.schedule = generate(specs, layout, options);
  view.report = check(view.schedule, check_options(config));
  view.costs_from =
      "blocks run here on a few samples, in float32 with 1 thread; links guessed";
}

std::string title_of(const StepView& view) {
  const bool exact = view.schedule.exact;
  return text(view.name, ", ", view.layout.empty() ? "one rank" : view.layout,
              exact ? ", exact" : "");
}

void write_files(const StepArgs& args, const StepView& view) {
  const StepTimes& times = view.simulation.times;
  if (!args.svg.empty())
    write_file_atomically(
        args.svg,
        render_svg(view.schedule, times,
                   {.title = title_of(view), .measured = view.measured}),
        ErrorKind::kConfig);
  if (!args.csv.empty())
    write_file_atomically(args.csv, to_csv(view.schedule), ErrorKind::kConfig);
  if (!args.trace.empty()) {
    const StepTrace trace = trace_of(view.schedule, times);
    write_file_atomically(args.trace, trace_json(trace.ranks), ErrorKind::kConfig);
  }
}

}  // namespace

StepView view_step(const StepArgs& args) {
  if (args.recipe.empty() == args.from.empty())
    throw ConfigError(
        "[step] legal: cohort step RECIPE, or cohort step --from F.csv, and not both");
  StepView view;
  if (args.from.empty())
    make_step(args, view);
  else
    read_step(args, view);
  if (!args.costs.empty()) {
    view.costs = costs_from_csv(read_file(args.costs, ErrorKind::kConfig));
    view.costs_from = args.costs;
  }
  view.simulation = simulate(view.schedule, view.costs);
  return view;
}

int run_step(const StepArgs& args, std::ostream& out) {
  const StepView view = view_step(args);
  write_files(args, view);
  out << (args.json ? step_json(view) + "\n" : format_step(view));
  out.flush();
  return 0;
}

}  // namespace cohort::cli
