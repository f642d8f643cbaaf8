// SPDX-License-Identifier: Apache-2.0
#include "cli/step_command.h"
#include "cli/step_setting.h"
#include "cli/verify_command.h"
#include "cohort/core/error.h"
#include "cohort/step.h"
#include "cohort/step/schedule_csv.h"

namespace cohort {

StepForecast foretell_step(const Recipe& recipe, const Config& config,
                           const StepOptions& options) {
  const cli::StepArgs args{.ranks = text(options.ranks),
                           .layout = options.layout,
                           .exact = options.exact,
                           .costs = options.costs,
                           .links = options.links};
  const cli::StepView view =
      cli::view_step(args, cli::setting_of(args, recipe, config));
  StepForecast forecast{.layout = view.layout,
                        .seconds = view.simulation.step,
                        .peak_bytes = view.report.largest().parts.total(),
                        .summary = cli::format_step(view),
                        .csv = to_csv(view.schedule),
                        .svg = cli::step_picture(view)};
  for (const auto& role : view.schedule.roles)
    forecast.actions += static_cast<int64_t>(role.actions.size());
  return forecast;
}

StepVerdict verify_step(const Recipe& recipe, const Config& config,
                        const StepOptions& options) {
  const Verdict verdict = cli::verify_one(
      {.ranks = text(options.ranks), .layout = options.layout, .exact = options.exact},
      recipe, config);
  return {.is_equal = !verdict.deviation,
          .largest = verdict.largest,
          .deviation = verdict.deviation ? verdict.deviation->text() : ""};
}

}  // namespace cohort
