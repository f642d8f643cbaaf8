// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block.h"

#include <set>

namespace cohort {

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

}  // namespace cohort
