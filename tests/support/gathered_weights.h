// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/elastic/state_exchange.h"
#include "cohort/engine/step_runner.h"
#include "cohort/train/weights_file.h"

namespace cohort::test {

// Elements in memory order as a tensor with its shape and strides.
inline Tensor in_form(const StatePiece& whole) {
  const auto& [spec, kind, order] = whole.tensor;
  if (order.empty()) return whole.data.view(spec.shape);
  std::vector<int64_t> sizes, back(order.size());
  for (size_t d = 0; d < order.size(); ++d) {
    sizes.push_back(spec.shape[order[d]]);
    back[order[d]] = static_cast<int64_t>(d);
  }
  return whole.data.view(sizes).permute(back);
}

// Collective: copies of the float32 weights and the buffers, whole, by name; only rank
// 0 gets them. The library itself never has a model in one place.
inline std::vector<NamedTensor> gathered_weights(StepRunner& runner,
                                                 Communicator& comm) {
  std::vector<StatePiece> have, want;
  for (auto& piece : runner.state(Holding::kOwned))
    if (piece.tensor.kind != TensorKind::kMoment)
      have.push_back({piece.tensor, piece.data.detach().cpu()});
  for (const auto& tensor : gather_tensors(comm, have))
    if (comm.rank() == 0)
      want.push_back({tensor, at::empty({tensor.spec.numel()}, tensor.spec.dtype)});
  EXPECT_EQ(exchange_state(comm, have, want), "");
  std::vector<NamedTensor> weights;
  for (const auto& whole : want)
    weights.push_back({whole.tensor.spec.name, in_form(whole)});
  return weights;
}

}  // namespace cohort::test
