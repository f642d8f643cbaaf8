// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/pipeline.h"

#include <string>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

constexpr std::pair<std::string_view, PipelineOrder> kOrders[] = {
    {"gpipe", PipelineOrder::kGpipe},
    {"1f1b", PipelineOrder::kOneForwardOneBackward},
    {"interleaved", PipelineOrder::kInterleaved},
    {"zero-bubble", PipelineOrder::kZeroBubble},
};

PipelineOrder parse_order(std::string_view given) {
  for (const auto& [name, order] : kOrders)
    if (name == given) return order;
  throw ConfigError(text("[step] pipeline.schedule=", given,
                         "; legal: gpipe, 1f1b, interleaved, zero-bubble"));
}

int parse_stages_per_place(int given, PipelineOrder order) {
  const bool interleaved = order == PipelineOrder::kInterleaved;
  if (given == 0) return interleaved ? 2 : 1;
  if (interleaved ? given >= 2 : given == 1) return given;
  throw ConfigError(text("[step] pipeline.virtual=", given,
                         interleaved ? " with pipeline.schedule=interleaved; legal: 2 "
                                       "and more"
                                     : "; legal: 1, or pipeline.schedule=interleaved"));
}

[[noreturn]] void refuse_cut(std::string_view given, const std::string& why) {
  throw ConfigError(text("[step] pipeline.cut=", given, why,
                         "; legal: auto, or the blocks of each stage in order, such as "
                         "0-3,4-7"));
}

std::vector<int> parse_cut(std::string_view given) {
  std::vector<int> ends;
  if (trim(given) == "auto") return ends;
  int64_t next = 0;
  for (const auto& part : split(given, ',')) {
    const std::string_view stage = part;
    const size_t dash = stage.find('-');
    const auto first = try_parse_int(stage.substr(0, dash));
    const auto last =
        dash == stage.npos ? first : try_parse_int(stage.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 1'000'000'000)
      refuse_cut(given, text(" has a stage '", stage, "'"));
    if (*first != next)
      refuse_cut(given, text(" has block ", *first, " where block ", next, " comes"));
    next = *last + 1;
    ends.push_back(static_cast<int>(next));
  }
  if (ends.empty()) refuse_cut(given, " has no stage");
  return ends;
}

std::vector<double> parse_speeds(std::string_view given) {
  std::vector<double> speeds;
  if (trim(given).empty()) return speeds;
  for (const auto& part : split(given, ',')) {
    const auto speed = try_parse_double(part);
    if (!speed || !(*speed > 0))
      throw ConfigError(text("[step] pipeline.speeds=", given, " has '", part,
                             "'; legal: a number above 0 for each place, such as "
                             "1,1,2"));
    speeds.push_back(*speed);
  }
  return speeds;
}

std::string stages_text(int places, int per_place) {
  return per_place == 1 ? text("pp=", places)
                        : text("pp=", places, " and pipeline.virtual=", per_place);
}

}  // namespace

std::string_view name_of(PipelineOrder order) {
  for (const auto& [name, known] : kOrders)
    if (known == order) return name;
  throw BugError("[step] an order of pipelines without a name");
}

PipelineOptions parse_pipeline(const PipelineText& given) {
  const PipelineOrder order = parse_order(given.schedule);
  PipelineOptions options{
      .order = order,
      .stages_per_place = parse_stages_per_place(given.stages_per_place, order),
      .ends = parse_cut(given.cut),
      .speeds = parse_speeds(given.speeds)};
  if (!options.ends.empty() && !options.speeds.empty())
    throw ConfigError(text("[step] pipeline.speeds=", given.speeds,
                           " with pipeline.cut=", given.cut, "; legal: one of them"));
  return options;
}

// A place alone has one stage, whatever the order of a pipeline would be.
void require_places(int places, const PipelineOptions& options) {
  const int per_place = places == 1 ? 1 : options.stages_per_place;
  const int stages = places * per_place;
  const int cut = static_cast<int>(options.ends.size());
  const int speeds = static_cast<int>(options.speeds.size());
  const int fits =
      cut % options.stages_per_place == 0 ? cut / options.stages_per_place : 0;
  if (cut > 0 && cut != stages)
    throw ConfigError(text("[step] pipeline.cut has ", cut, " stages, and ",
                           stages_text(places, per_place), " needs ", stages,
                           "; legal: auto, or ", stages, " of them",
                           fits > 1 ? text(", or --layout pp=", fits) : ""));
  if (speeds > 0 && speeds != places)
    throw ConfigError(text("[step] pipeline.speeds has ", speeds,
                           " numbers, and pp=", places,
                           " as many places; legal: ", places, " of them, or none",
                           speeds > 1 ? text(", or --layout pp=", speeds) : ""));
  if (places == 1 && !options.costs.empty())
    throw ConfigError(
        "[step] pipeline.costs with pp=1, where nothing is cut; legal: no "
        "pipeline.costs, or --layout pp=2 and more");
}

void require_stages(int blocks, int places, const PipelineOptions& options) {
  require_places(places, options);
  const int per_place = places == 1 ? 1 : options.stages_per_place;
  const int stages = places * per_place;
  if (blocks < stages)
    throw ConfigError(
        text("[step] layout ", stages_text(places, per_place), ": the model has ",
             blocks, " blocks, which is no stage for each; legal: pp=1",
             blocks < 2 * per_place ? "" : text(" to ", blocks / per_place),
             per_place == 1 ? "" : ", or fewer of them at each place"));
  const auto& ends = options.ends;
  if (!ends.empty() && ends.back() != blocks)
    throw ConfigError(text("[step] pipeline.cut ends with block ", ends.back() - 1,
                           ", and the model with block ", blocks - 1,
                           "; legal: auto, or stages that cover all blocks"));
  const auto& costs = options.costs;
  if (!costs.empty() && static_cast<int>(costs.size()) != blocks)
    throw ConfigError(text("[step] pipeline.costs has ", costs.size(),
                           " blocks, and the model ", blocks,
                           "; legal: a table of costs of this model's blocks"));
}

}  // namespace cohort
