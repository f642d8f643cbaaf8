// SPDX-License-Identifier: Apache-2.0
#include "cli/plain_loop.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <utility>

namespace cohort::cli {

struct PlainLoop::Parts {
  Tensor input;
  torch::nn::Sequential model;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

PlainLoop::PlainLoop(Tensor input) : parts_(std::make_unique<Parts>()) {
  parts_->input = std::move(input);
  for (int i = 0; i < 6; ++i) parts_->model->push_back(torch::nn::Linear(2048, 2048));
  parts_->optimizer = std::make_unique<torch::optim::SGD>(
      parts_->model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
}

PlainLoop::~PlainLoop() = default;

void PlainLoop::step() {
  const Tensor loss = parts_->model->forward(parts_->input).square().mean();
  parts_->optimizer->zero_grad();
  loss.backward();
  parts_->optimizer->step();
}

}  // namespace cohort::cli
