// SPDX-License-Identifier: Apache-2.0
// A model that is too large for one device, cut between two by hand, and trained on any
// number of ranks:
//   cohort launch -n 2 -- build/release/bin/two_devices
// A machine with two GPUs has half of the model on each; with one, the other half is on
// the host; without any, both are.
#include <cohort/data_parallel.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

namespace nn = torch::nn;

struct ToyImpl : nn::Module {
  ToyImpl(torch::Device one, torch::Device two) : one(one), two(two) {
    first->to(one);
    second->to(two);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    return second(torch::relu(first(input.to(one))).to(two));
  }

  torch::Device one, two;
  nn::Linear first{register_module("first", nn::Linear(10, 10))};
  nn::Linear second{register_module("second", nn::Linear(10, 5))};
};
TORCH_MODULE(Toy);

int main() {
  auto session = cohort::Session::from_env();
  torch::manual_seed(1);
  const auto gpus = torch::cuda::device_count();
  const torch::Device one(gpus > 0 ? "cuda:0" : "cpu");
  const torch::Device two(gpus > 1 ? "cuda:1" : "cpu");
  Toy model(one, two);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  cohort::DataParallel parallel(*model, session.comm());

  const auto inputs = torch::randn({64, 10}), wanted = torch::randn({64, 5});
  for (int step = 1; step <= 20; ++step) {
    const auto mine = inputs.tensor_split(session.size())[session.rank()];
    const auto target = wanted.tensor_split(session.size())[session.rank()].to(two);
    const auto loss = nn::functional::mse_loss(model->forward(mine), target);
    const double mean = parallel.backward(loss, mine.size(0));
    optimizer.step();
    if (step % 10 == 0)
      std::printf("step %d: loss %.4f, on %s and %s\n", step, mean, one.str().c_str(),
                  two.str().c_str());
  }
}
