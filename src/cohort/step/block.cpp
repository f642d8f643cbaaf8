// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block.h"

namespace cohort {

std::vector<NamedTensor> Chain::parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& block : blocks) {
    const auto own = block->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
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
