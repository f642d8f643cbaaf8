// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block.h"

#include <algorithm>
#include <set>

namespace cohort {

void add_fields(std::span<const std::string> more, std::vector<std::string>& fields) {
  for (const auto& field : more)
    if (std::ranges::find(fields, field) == fields.end()) fields.push_back(field);
}

Values cut_graph(const Values& values, bool needs_gradient) {
  Values cut;
  for (const auto& value : values)
    cut.push_back(
        value.detach().requires_grad_(needs_gradient && value.is_floating_point()));
  return cut;
}

std::vector<NamedTensor> Chain::parameters() const {
  std::vector<NamedTensor> all;
  std::set<const void*> seen;  // blocks may share parameters
  for (const auto& block : blocks)
    for (const auto& parameter : block->parameters())
      if (seen.insert(parameter.tensor.unsafeGetTensorImpl()).second)
        all.push_back(parameter);
  return all;
}

std::vector<NamedTensor> Chain::buffers() const {
  std::vector<NamedTensor> all;
  for (const auto& block : blocks) {
    const auto own = block->buffers();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<std::string> Chain::block_fields() const {
  std::vector<std::string> all;
  for (const auto& block : blocks) add_fields(block->fields(), all);
  return all;
}

std::vector<std::string> Chain::fields() const {
  std::vector<std::string> all = block_fields();
  add_fields(loss.fields, all);
  return all;
}

}  // namespace cohort
