// SPDX-License-Identifier: Apache-2.0
#include "cli/step_command.h"

#include <ATen/Parallel.h>

#include <iostream>
#include <optional>

#include "cli/step_costs.h"
#include "cli/step_measure.h"
#include "cli/step_options.h"
#include "cli/step_roles.h"
#include "cli/step_setting.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/parse.h"
#include "cohort/engine/block_measure.h"
#include "cohort/observe/trace.h"
#include "cohort/step/action_costs.h"
#include "cohort/step/generator.h"
#include "cohort/step/link_profiles.h"
#include "cohort/step/picture/renderer.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/step_trace.h"
#include "cohort/train/checked_recipe.h"
#include "cohort/train/model_counts.h"

namespace cohort::cli {
namespace {

constexpr std::string_view kGuessedLinks = "; links guessed";

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

// A file has its own ranks, layout and keys; the limit is the machine's.
int64_t limit_of(const StepArgs& args) {
  constexpr std::string_view kLimit = "memory.limit=";
  const bool plain = args.ranks == "1" && args.layout.empty() && !args.exact &&
                     args.config.empty() && args.measure == 0;
  int64_t limit = 0;
  bool legal = plain;
  for (const auto& assignment : args.set) {
    if (assignment.starts_with(kLimit))
      limit = parse_bytes(assignment.substr(kLimit.size()), "memory.limit");
    else
      legal = false;
  }
  if (!legal)
    throw ConfigError(
        text("[step] ", args.from,
             " says what the step is; legal with --from: --set memory.limit=BYTES, "
             "--costs, --svg, --csv, --trace, --json"));
  return limit;
}

std::string layout_of(const Schedule& schedule) {
  std::string out = text("dp=", schedule.mesh.size(kDataAxes));
  if (schedule.shard > 0) out += text(",shard=", schedule.shard);
  for (const Axis axis : {Axis::kReplicate, Axis::kPipe, Axis::kContext, Axis::kTensor})
    if (schedule.mesh.size(axis) > 1)
      out += text(",", name_of(axis), "=", schedule.mesh.size(axis));
  return out;
}

void read_step(const StepArgs& args, StepView& view) {
  const int64_t limit = limit_of(args);
  ScheduleFile file = from_csv(read_file(args.from, ErrorKind::kConfig));
  view.name = args.from;
  view.schedule = std::move(file.schedule);
  view.measured = std::move(file.times);
  view.layout = layout_of(view.schedule);
  view.report = check(view.schedule, {.memory_limit = limit});
  view.costs = plain_costs(view.schedule);
  view.costs_from = "assumed: 1 ms per forward, 2 ms per backward";
}

// A few samples of the right form, that need no files.
DataSets made_up_data(const StepSetting& setting) {
  Config config = setting.config;
  config.set("data.synthetic", "true", "cohort step");
  const auto loading = begin_loading(*setting.recipe, config, /*reader=*/true);
  return finish_loading(*setting.recipe, *loading, nullptr);
}

std::vector<BlockCost> seconds_of(std::span<const BlockMeasure> measures) {
  std::vector<BlockCost> out;
  for (const auto& measure : measures) out.push_back(measure.seconds);
  return out;
}

// What blocks need is counted without making the model, and one of each form is run
// here; a model that cannot be counted is run whole. `given`: costs that say what
// blocks take, if there are any.
StepView make_step(const StepSetting& setting, const std::optional<CostTable>& given) {
  const TensorPart part = tensor_part(setting.config, setting.layout, 0);
  const DataSets data = made_up_data(setting);
  at::set_num_threads(1);
  const auto counts = count_model(*setting.recipe, setting.config, part, *data.train);
  const Chain chain = setting.make_form();
  const auto measures = counts ? needs_of(*counts) : measure_blocks(chain, *data.train);
  const std::vector<BlockSpec> specs = specs_of(chain);
  StepView view;
  view.name = setting.recipe->name();
  view.layout = setting.layout_text();
  view.samples = setting.samples(setting.batch());
  view.schedule = schedule_of(setting, specs, measures, setting.batch());
  view.report = check(view.schedule, check_options(setting.config));
  view.speeds = setting.options.pipeline.speeds;
  view.costs = guess_costs(specs, view.samples);
  if (given && !given->blocks.empty()) return view;
  BlockCosts blocks{.blocks = seconds_of(measures), .from = kBlocksRunHere};
  if (counts) blocks = time_blocks(setting, *counts, *data.train);
  view.costs.blocks = std::move(blocks.blocks);
  view.costs_from = text(blocks.from, kGuessedLinks);
  return view;
}

std::string title_of(const StepView& view) {
  const bool exact = view.schedule.exact;
  return text(view.name, ", ", view.layout.empty() ? "one rank" : view.layout,
              exact ? ", exact" : "");
}

std::string costs_text(const StepView& view) {
  std::string out = text("# ", title_of(view), "; ", view.costs_from, "\n");
  for (size_t b = 0; b < view.schedule.blocks.size(); ++b)
    out += text("# block ", b, ": ", view.schedule.blocks[b], "\n");
  return out + to_csv(view.costs);
}

void write_files(const StepArgs& args, const StepView& view) {
  const StepTimes& times = view.simulation.times;
  if (!args.svg.empty())
    write_file_atomically(args.svg, step_picture(view), ErrorKind::kConfig);
  if (!args.csv.empty())
    write_file_atomically(args.csv, to_csv(view.schedule, view.measured),
                          ErrorKind::kConfig);
  if (!args.costs_out.empty())
    write_file_atomically(args.costs_out, costs_text(view), ErrorKind::kConfig);
  if (!args.trace.empty()) {
    const StepTrace trace = trace_of(view.schedule, times, view.measured);
    write_file_atomically(args.trace, trace_json(trace.ranks), ErrorKind::kConfig);
  }
}

void show(const StepArgs& args, const StepView& view, std::ostream& out) {
  write_files(args, view);
  out << (args.json ? step_json(view) + "\n" : format_step(view));
  if (!args.json && view.schedule.roles.size() > 1) out << "\n" << format_roles(view);
  if (!args.json && !view.measured.empty()) out << "\n" << format_measured(view);
  out.flush();
}

// In a rank, whose stdout is passed on.
void show_measured(const StepArgs& args, const StepView& view) {
  show(args, view, std::cout);
}

std::string_view without_guess(std::string_view source) {
  if (source.ends_with(kGuessedLinks)) source.remove_suffix(kGuessedLinks.size());
  return source;
}

std::optional<CostTable> given_costs(const StepArgs& args) {
  if (args.costs.empty()) return std::nullopt;
  return read_costs(args.costs);
}

void take_costs(const std::string& file, CostTable given, StepView& view) {
  if (given.blocks.empty()) {
    take_links(given, view.costs);
    view.costs_from =
        text("links of ", file, "; else ", without_guess(view.costs_from));
  } else {
    view.costs = std::move(given);
    view.costs_from = file;
  }
}

void complete(const StepArgs& args, std::optional<CostTable> given, StepView& view) {
  if (given) take_costs(args.costs, *std::move(given), view);
  if (!args.links.empty()) {
    const LinkProfile& profile = find_link_profile(args.links);
    take_links(links_of(profile), view.costs);
    view.costs_from =
        text(without_guess(view.costs_from), "; links ", profile.source, "; not run");
  }
  if (!args.costs.empty()) require_costs_of(view.schedule, view.costs);
  if (view.samples > 0) view.costs.samples = view.samples;
  view.simulation =
      simulate(view.schedule, at_places(view.costs, view.schedule.stages, view.speeds));
}

}  // namespace

StepView view_step(const StepArgs& args, const RecipeList& recipes) {
  if (args.recipe.empty() == args.from.empty())
    throw ConfigError(
        "[step] legal: cohort step RECIPE, or cohort step --from F.csv, and not both");
  if (args.from.empty()) return view_step(args, setting_of(args, recipes));
  StepView view;
  read_step(args, view);
  complete(args, view);
  return view;
}

StepView view_step(const StepArgs& args, const StepSetting& setting) {
  std::optional<CostTable> given = given_costs(args);
  StepView view = make_step(setting, given);
  complete(args, std::move(given), view);
  return view;
}

std::string step_picture(const StepView& view) {
  return render_svg(view.schedule, view.simulation.times,
                    {.title = title_of(view), .measured = view.measured});
}

void complete(const StepArgs& args, StepView& view) {
  complete(args, given_costs(args), view);
}

int run_step(const StepArgs& args, const RecipeList& recipes, std::ostream& out) {
  if (args.measure > 0) return measure_step(args, recipes, &show_measured);
  show(args, view_step(args, recipes), out);
  return 0;
}

}  // namespace cohort::cli
