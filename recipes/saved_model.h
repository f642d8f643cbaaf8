// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cohort/checkpoint/checkpoint.h"
#include "recipes/recipe_list.h"

namespace cohort {

// What a checkpoint says of its model, in RunState::state (docs/formats/checkpoint.md):
// the recipe's name, and the keys that its model and its data are made of. For
// BackupOptions::model.
std::map<std::string, std::string> model_states(const Recipe& recipe,
                                                const Config& config);

// The recipe's name; empty: nobody says.
std::string recipe_name_of(const RunState& run);

// A recipe and the keys to make a model anew with.
struct SavedModel {
  const Recipe* recipe = nullptr;
  Config config;
};

// What the checkpoint says; nothing if it was made before checkpoints did, or of no
// recipe. ConfigError for a recipe that is not among these; with the path of
// the checkpoint, for such a key.
std::optional<SavedModel> saved_model(const RecipeList& recipes,
                                      const Checkpoint& saved);

// The model of that recipe and config, with the weights of a checkpoint.
// CheckpointError that names a tensor which one of them does not have, or has in
// another shape.
Chain load_chain(const SavedModel& model, Checkpoint& saved);

}  // namespace cohort
