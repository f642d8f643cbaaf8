// SPDX-License-Identifier: Apache-2.0
// examples/single.cpp with the optimizer's state and gradients cut over the ranks, by
// the lines marked (1) to (5):
//   cohort launch -n 2 -- build/release/bin/sharded
#include <cohort/sharded.h>  // (1)
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

namespace nn = torch::nn;

struct NetImpl : nn::Module {
  nn::Conv2d conv{register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 16, 3)))};
  nn::Linear hidden{register_module("hidden", nn::Linear(16 * 13 * 13, 64))};
  nn::Linear out{register_module("out", nn::Linear(64, 10))};

  torch::Tensor forward(const torch::Tensor& images) {
    const auto maps = torch::max_pool2d(torch::relu(conv(images)), 2);
    return out(torch::relu(hidden(maps.flatten(1))));
  }
};
TORCH_MODULE(Net);

int main() {
  auto session = cohort::Session::from_env();  // (2) who am I, who are the others
  torch::manual_seed(1);
  // Ten patterns under noise: a task that needs no files.
  const auto labels = torch::randint(10, {1000}, torch::kLong);
  const auto images = torch::randn({10, 1, 28, 28}).index_select(0, labels) +
                      2 * torch::randn({1000, 1, 28, 28});

  Net model;
  cohort::Sharded sharded(*model, session.comm(),  // (3) rank 0's weights
                          {.level = 2, .update = {.name = "sgd", .momentum = 0.9}});
  for (int epoch = 1; epoch <= 3; ++epoch) {
    double mean = 0;
    for (auto ids : torch::randperm(1000, torch::kLong).split(64)) {
      ids = ids.tensor_split(session.size())[session.rank()];  // (4) my share
      const auto target = labels.index_select(0, ids);
      const auto logits = model->forward(images.index_select(0, ids));
      const auto loss = nn::functional::cross_entropy(logits, target);
      mean = sharded.backward(loss, target.size(0));  // (5) over all ranks
      sharded.step(0.02);
    }
    std::printf("epoch %d: loss of the last batch %.4f\n", epoch, mean);
  }
}
