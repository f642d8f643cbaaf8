// SPDX-License-Identifier: Apache-2.0
// examples/sharded.cpp that saves, and goes on with any number of ranks, by (1) to (5):
//   cohort launch -n 2 -- build/release/bin/checkpoints runs/mine 2
//   cohort launch -n 3 -- build/release/bin/checkpoints runs/mine 3
#include <cohort/checkpoint.h>  // (1)
#include <cohort/sharded.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>

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
  double sum() const {
    const auto all = nn::utils::parameters_to_vector(parameters());
    return all.to(torch::kDouble).abs().sum().item<double>();
  }
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 3;
  auto session = cohort::Session::from_env();
  torch::manual_seed(1);
  // Ten patterns under noise: a task that needs no files.
  const auto labels = torch::randint(10, {1000}, torch::kLong);
  const auto images = torch::randn({10, 1, 28, 28}).index_select(0, labels) +
                      2 * torch::randn({1000, 1, 28, 28});
  Net model;
  cohort::Sharded sharded(*model, session.comm(),
                          {.level = 2, .update = {.name = "sgd", .momentum = 0.9}});
  cohort::Checkpoints saved(argc > 1 ? argv[1] : "runs/mine", session.comm());  // (2)
  saved.keep(sharded);  // (3) beside DataParallel: .keep(*model).keep(optimizer)
  int64_t step = saved.resume().value_or(0);  // (4) where the last run ended, or at 0
  std::printf("goes on at step %d: weights %.17g\n", int(step), model->sum());
  while (step < 16 * epochs) {
    torch::manual_seed(step / 16);  // an epoch has one order
    auto ids = torch::randperm(1000, torch::kLong).split(64)[step % 16];
    ids = ids.tensor_split(session.size())[session.rank()];
    const auto logits = model->forward(images.index_select(0, ids));
    const auto target = labels.index_select(0, ids);
    sharded.backward(nn::functional::cross_entropy(logits, target), target.size(0));
    sharded.step(0.02);
    if (++step % 16 != 0) continue;
    saved.save(step);  // (5) all of it, or as before
    std::printf("saved at step %d: weights %.17g\n", int(step), model->sum());
  }
}
