// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/tensor.h"

namespace cohort::cli {

// What a LibTorch user writes for one rank: six Linear layers of 2048, the mean
// square as loss, torch::optim::SGD with momentum. The yardstick of `bench train
// mlp100`.
class PlainLoop {
 public:
  explicit PlainLoop(Tensor input);
  ~PlainLoop();
  void step();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace cohort::cli
