// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/recipe.h"
#include "cohort/step/layout.h"

namespace cohort {

// What a rank has of each layer.
TensorPart tensor_part(const Config& config, const Layout& layout, int rank);

// What a recipe gives, refused with a ConfigError in one line where nobody could use
// it.

// Its model: has blocks, each with a name of its own, of which the first takes a field
// of a batch, and a loss.
Chain checked_chain(const Recipe& recipe, const Config& config, const TensorPart& part);

// Its data: on the way, and there, with something to train with.
std::unique_ptr<DataLoading> begin_loading(const Recipe& recipe, const Config& config,
                                           bool reader);
DataSets finish_loading(const Recipe& recipe, DataLoading& loading, Communicator* node);

}  // namespace cohort
