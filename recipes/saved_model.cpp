// SPDX-License-Identifier: Apache-2.0
#include "recipes/saved_model.h"

#include <ATen/ATen.h>

#include <set>
#include <utility>

#include "cohort/checkpoint/load.h"
#include "cohort/core/error.h"
#include "cohort/core/json.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/chain_specs.h"

namespace cohort {
namespace {

constexpr const char* kRecipeState = "recipe";      // its name
constexpr const char* kSettingsState = "settings";  // JSON: {"model.width":0,...}

void add_setting(JsonObject& object, const Config& config, const Key& key) {
  switch (key.kind) {
    case KeyKind::kBool:
      object.add(key.name, config.get_bool(key.name));
      return;
    case KeyKind::kInt:
      object.add(key.name, config.get_int(key.name));
      return;
    case KeyKind::kFloat:
      object.add(key.name, config.get_float(key.name));
      return;
    default:
      object.add(key.name, config.get_string(key.name));
  }
}

void require_no_more(const Checkpoint& saved, const SavedModel& model,
                     const std::set<std::string>& known) {
  for (const auto& [tensor, boxes] : saved.manifest().tensors)
    if (tensor.kind == TensorKind::kParameter && !known.contains(tensor.spec.name))
      throw CheckpointError(text("[recipes] ", saved.path(), ": has the parameter ",
                                 tensor.spec.name, ", and ", model.recipe->name(),
                                 " with these keys has none; legal: the recipe and the "
                                 "model.* keys that it was made with"));
}

}  // namespace

std::map<std::string, std::string> model_states(const Recipe& recipe,
                                                const Config& config) {
  JsonObject settings;
  for (const Key& key : config.keys().all())
    if (key.name.starts_with("model.") || key.name.starts_with("data."))
      add_setting(settings, config, key);
  return {{kRecipeState, std::string(recipe.name())},
          {kSettingsState, settings.text()}};
}

std::string recipe_name_of(const RunState& run) {
  const auto said = run.state.find(kRecipeState);
  return said == run.state.end() ? "" : said->second;
}

std::optional<SavedModel> saved_model(const RecipeList& recipes,
                                      const Checkpoint& saved) {
  const auto& state = saved.manifest().run.state;
  const auto recipe = state.find(kRecipeState), settings = state.find(kSettingsState);
  if (recipe == state.end() || settings == state.end()) return std::nullopt;
  const Recipe& found = recipes.find(recipe->second);
  SavedModel model{&found, found.defaults()};
  model.config.load_text(settings->second, saved.path() + " settings");  // JSON is YAML
  return model;
}

Chain load_chain(const SavedModel& model, Checkpoint& saved) {
  Chain chain;
  {
    const ModelsFilledLater later;
    chain = model.recipe->make_chain(model.config, {});
  }
  std::set<std::string> known;
  for (const auto& spec : parameter_specs(chain)) {
    require_fit(saved, spec);
    known.insert(spec.name);
  }
  require_no_more(saved, model, known);
  for (const auto& [name, tensor] : chain.parameters())
    Tensor(tensor).set_data(saved.read(name, at::kFloat));
  for (const auto& [name, buffer] : chain.buffers())
    Tensor(buffer).copy_(saved.read(name));
  return chain;
}

}  // namespace cohort
