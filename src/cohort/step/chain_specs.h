// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {

// The same values as leaves of a new graph: each block's backward is a graph of its
// own, which ends where the block begins.
Values cut_graph(const Values& values, bool needs_gradient);

// A parameter of the block as the state has it: the whole it is of, and which part.
TensorSpec parameter_spec(const Block& block, size_t index);

// Adds those that are not there yet.
void add_fields(std::span<const std::string> more, std::vector<std::string>& fields);

// Those of all blocks, in the order of Chain::parameters().
std::vector<TensorSpec> parameter_specs(const Chain& chain);

}  // namespace cohort
