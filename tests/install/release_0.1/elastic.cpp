// SPDX-License-Identifier: Apache-2.0
// examples/data_parallel.cpp on ranks that may be killed at any time, by the lines
// marked (1) to (6); it ends with the same weights:
//   cohort launch --elastic -n 2 -- build/release/bin/elastic
#include <cohort/data_parallel.h>
#include <cohort/elastic.h>  // (1)
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <iostream>

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

int main(int argc, char** argv) {
  torch::manual_seed(1);
  // Ten patterns under noise: a task that needs no files.
  const auto labels = torch::randint(10, {1000}, torch::kLong);
  const auto images = torch::randn({10, 1, 28, 28}).index_select(0, labels) +
                      2 * torch::randn({1000, 1, 28, 28});

  Net model;
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.02).momentum(0.9));
  const int epochs = argc > 1 ? std::stoi(argv[1]) : 3;
  cohort::ElasticRun run(*model, optimizer);   // (2) who replaces whom
  run.train([&](cohort::Communicator& comm) {  // (3) again after each loss
    cohort::DataParallel parallel(*model, comm);
    while (run.steps() < 16 * epochs) {      // (4) from where the others are
      torch::manual_seed(run.steps() / 16);  // (5) an epoch has one order
      auto ids = torch::randperm(1000, torch::kLong).split(64)[run.steps() % 16];
      ids = ids.tensor_split(comm.size())[comm.rank()];
      const auto target = labels.index_select(0, ids);
      const auto logits = model->forward(images.index_select(0, ids));
      const auto loss = nn::functional::cross_entropy(logits, target);
      optimizer.zero_grad();
      const double mean = parallel.backward(loss, target.size(0));
      optimizer.step();
      run.commit();  // (6) this step is never lost
      if (run.steps() % 16 == 0)
        std::cout << "step " << run.steps() << ": loss " << mean << std::endl;
    }
    const auto all = nn::utils::parameters_to_vector(model->parameters());
    std::printf("weights %.17g\n", all.to(torch::kDouble).abs().sum().item<double>());
  });
}
