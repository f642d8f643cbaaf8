// SPDX-License-Identifier: Apache-2.0
#include "cli/model_outline.h"

#include <chrono>
#include <string>
#include <tuple>
#include <utility>

#include "cli/child_answer.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
#include "cohort/core/record.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/pipeline.h"
#include "cohort/train/checked_recipe.h"

namespace cohort {

auto record_fields(Alike<TensorSpec> auto& whole) {
  return std::tie(whole.name, whole.shape, whole.dtype, whole.end);
}

namespace cli {

auto record_fields(Alike<ModelOutline> auto& outline) {
  return std::tie(outline.blocks, outline.trained, outline.frozen, outline.buffers);
}

namespace {

// Why the recipe refuses, or else its outline.
using OutlineAnswer = std::pair<std::string, ModelOutline>;

ModelOutline outline_from(const Chain& chain) {
  ModelOutline outline{.blocks = static_cast<int>(chain.blocks.size())};
  for (const auto& [name, tensor] : chain.parameters()) {
    auto& home = tensor.requires_grad() ? outline.trained : outline.frozen;
    home.push_back(spec_of(name, tensor));
  }
  for (const auto& [name, tensor] : chain.buffers())
    outline.buffers.push_back(spec_of(name, tensor));
  return outline;
}

OutlineAnswer tell(const Recipe& recipe, const Config& config, const TensorPart& part) {
  try {
    const ModelsWithoutMemory guard;
    return {"", outline_from(checked_chain(recipe, config, part))};
  } catch (const ConfigError& error) {
    return {error.what(), {}};
  }
}

// Long for a model, short for a person.
constexpr std::chrono::seconds kOutlineTime{60};

}  // namespace

std::optional<ModelOutline> outline_of(const Recipe& recipe, const Config& config,
                                       const TensorPart& part) {
  const ChildAnswer answer =
      ask_child([&] { return to_record(tell(recipe, config, part)); }, kOutlineTime);
  if (!answer.worked) return std::nullopt;
  const auto told = try_read_record<OutlineAnswer>(answer.text);
  if (!told) return std::nullopt;
  if (!told->first.empty()) throw ConfigError(told->first);
  return told->second;
}

// Only a choice that names blocks, or a model in parts, needs to know what there is.
void require_blocks(const Recipe& recipe, const Config& config,
                    const GeneratorOptions& step, const std::optional<Layout>& known) {
  constexpr const char* kKey = "step.recompute";
  const Layout layout = known.value_or(Layout{});
  const bool cuts = known && (layout.pp > 1 || !step.pipeline.ends.empty());
  if (!step.recompute.names_blocks() && !cuts && layout.tp == 1) return;
  const auto outline = outline_of(recipe, config, tensor_part(config, layout, 0));
  if (!outline) return;
  step.recompute.require_within(outline->blocks, kKey);
  if (!known) return;
  require_seconds_of(outline->blocks, step.pipeline.costs, config);
  require_stages(outline->blocks, layout.pp, step.pipeline);
}

}  // namespace cli
}  // namespace cohort
