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
  for (const auto& [tensor, data] : want)
    weights.push_back(
        {tensor.spec.name, in_shape(data, tensor.spec.shape, tensor.order)});
  return weights;
}

}  // namespace cohort::test
