// SPDX-License-Identifier: Apache-2.0
// A program on an installed Cohort: fits y = x W^T + b to known W and b, data parallel.
// Exits with 0 if it found them.
#include <cohort/data_parallel.h>
#include <cohort/error.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <iostream>

int main() {
  try {
    auto session = cohort::Session::from_env();
    torch::manual_seed(session.rank());  // every rank has samples of its own
    torch::nn::Linear model(3, 1);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    cohort::DataParallel parallel(*model, session.comm());

    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      const auto x = torch::randn({16, 3});
      const auto y = x.sum(1, /*keepdim=*/true) + 5;
      loss = parallel.backward(torch::nn::functional::mse_loss(model->forward(x), y),
                               x.size(0));
      optimizer.step();
    }
    const bool fits = loss < 1e-4 && std::abs(model->bias.item<float>() - 5) < 0.01;
    if (session.rank() == 0)
      std::cout << (fits ? "fits" : "does not fit") << " on " << session.size()
                << (session.size() == 1 ? " rank" : " ranks") << ": loss " << loss
                << "\n";
    return fits ? 0 : 1;
  } catch (const cohort::Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
}
