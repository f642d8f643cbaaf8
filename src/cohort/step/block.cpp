// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block.h"

#include <algorithm>
#include <set>

#include "cohort/core/error.h"

namespace cohort {

void add_fields(std::span<const std::string> more, std::vector<std::string>& fields) {
  for (const auto& field : more)
    if (std::ranges::find(fields, field) == fields.end()) fields.push_back(field);
}

std::string_view name_of(BlockCall::When when) {
  constexpr std::string_view kNames[] = {"forward", "backward", "evaluation"};
  return kNames[static_cast<size_t>(when)];
}

std::string BlockCall::text(int64_t samples) const {
  std::string along;
  for (const Axis axis : kAllAxes)
    if (axes.has(axis)) along += cohort::text(along.empty() ? "" : ",", name_of(axis));
  return cohort::text(name_of(op), " of ", numel_for(samples), " ",
                      c10::toString(dtype), " over ", along);
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
