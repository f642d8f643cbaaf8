// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>

#include "cohort/block.h"

namespace cohort::test {

inline Tensor run(const Chain& chain, const Tensor& x, Context context = {}) {
  Values values{x};
  for (const auto& block : chain.blocks) values = block->forward(values, context);
  return values[0];
}

// Gradients of the mean loss, by name.
inline std::map<std::string, Tensor> gradients(const Chain& chain,
                                               const WeightedLoss& loss) {
  std::vector<Tensor> parameters;
  for (const auto& [name, tensor] : chain.parameters()) parameters.push_back(tensor);
  const auto grads = torch::autograd::grad({loss.sum / loss.count_here()}, parameters);
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < grads.size(); ++i)
    named[chain.parameters()[i].name] = grads[i];
  return named;
}

// In [-1, 1): an integer hash, so that Python makes the same numbers.
inline Tensor noise(at::IntArrayRef shape, int64_t seed) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  Tensor x = at::arange(count, at::kLong) + 1'000'003 * seed;
  constexpr int64_t kSteps[3][2] = {
      {0x9E3779B1, 15}, {0x85EBCA77, 13}, {0xC2B2AE3D, 16}};
  for (const auto& [factor, shift] : kSteps) {
    x = (x * factor).bitwise_and(int64_t{0xFFFFFFFF});
    x = x.bitwise_xor(x.bitwise_right_shift(shift));
  }
  return (x.to(at::kDouble) / 2147483648.0 - 1).to(at::kFloat).view(shape);
}

// Numbered in the order of names, as resnet_golden.py does.
inline void set_weights(const Chain& chain) {
  std::map<std::string, Tensor> sorted;
  for (const auto& [name, tensor] : chain.parameters()) sorted[name] = tensor.detach();
  int64_t number = 0;
  for (auto& [name, tensor] : sorted) {
    Tensor values = noise(tensor.sizes(), number++);
    if (tensor.dim() > 1)
      values *= std::sqrt(6.0 * tensor.size(0) / tensor.numel());
    else
      values = 0.3 * values + (name.ends_with("weight") ? 1 : 0);
    tensor.copy_(values);
  }
}

}  // namespace cohort::test
