// SPDX-License-Identifier: Apache-2.0
#include "cohort/layers.h"

namespace cohort {

Tensor TensorLists::add_parameter(std::string name, Tensor value, ParameterCut cut) {
  value.requires_grad_(true);
  parameters.push_back({std::move(name), value});
  cuts.push_back(std::move(cut));
  return value;
}

std::vector<BlockCall> LayerBlock::calls() const {
  std::vector<BlockCall> all = tensors_.forward_calls;
  const auto& backward = tensors_.backward_calls;
  all.insert(all.end(), backward.rbegin(), backward.rend());
  return all;
}

Tensor TensorLists::add_buffer(std::string name, Tensor value) {
  buffers.push_back({std::move(name), value});
  return value;
}

}  // namespace cohort
