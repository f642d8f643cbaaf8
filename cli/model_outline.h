// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "cohort/config.h"
#include "cohort/recipe.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/step/tensor_spec.h"

namespace cohort::cli {

// What is known of a recipe's model before anybody makes it.
struct ModelOutline {
  int blocks = 0;
  std::vector<TensorSpec> trained, frozen, buffers;
};

// Found out in a process of its own: making a chain may run kernels, and a process that
// is to start ranks must not have run any. Empty if that fails: the ranks will say why.
// ConfigError if the recipe refuses it.
std::optional<ModelOutline> outline_of(const Recipe& recipe, const Config& config,
                                       const TensorPart& part = {});

// ConfigError if a key names a block that the chain does not have, it has no block for
// each stage of the pipeline, or its layers cannot be cut as the layout says. `known`:
// none where nobody can say yet how many ranks there will be.
void require_blocks(const Recipe& recipe, const Config& config,
                    const GeneratorOptions& step, const std::optional<Layout>& known);

}  // namespace cohort::cli
