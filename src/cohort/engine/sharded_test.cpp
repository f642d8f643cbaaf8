// SPDX-License-Identifier: Apache-2.0
#include "cohort/sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "cohort/core/error.h"
#include "cohort/data_parallel.h"
#include "support/ranks.h"
#include "support/sine_weights.h"

namespace cohort {
namespace {

struct Net : torch::nn::Module {
  Net() {
    register_module("first", first);
    register_module("second", second);
    register_module("never", never);
    test::fill_with_sines(parameters());
  }
  Tensor forward(const Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first{40, 30}, second{30, 5}, never{4, 4};
};

// Rank r has r + 1 rows.
Tensor rows(int rank, int64_t step) {
  return at::arange((rank + 1) * 40, at::kFloat)
      .mul(0.1)
      .add(static_cast<double>(step + 3 * rank))
      .cos()
      .reshape({rank + 1, 40});
}

class ShardedTest : public testing::TestWithParam<test::World> {};

TEST_P(ShardedTest, EveryLevelTrainsAsLibTorchsAdamW) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Net stock;
    DataParallel parallel(stock, comm);
    torch::optim::AdamW optimizer(stock.parameters(),
                                  torch::optim::AdamWOptions(0.01).weight_decay(0));
    for (int64_t step = 0; step < 4; ++step) {
      parallel.backward(stock.forward(rows(comm.rank(), step)).square().mean(1).mean(),
                        comm.rank() + 1);
      optimizer.step();
    }
    for (int level : {0, 1, 2}) {
      Net net;
      Sharded sharded(
          net, comm,
          {.level = level, .update = {.name = "adamw"}, .bucket_bytes = 4096});
      for (int64_t step = 0; step < 4; ++step) {
        sharded.backward(net.forward(rows(comm.rank(), step)).square().mean(1).mean(),
                         comm.rank() + 1);
        sharded.step(0.01);
      }
      EXPECT_THAT(sharded.unused(), testing::ElementsAre("never.weight", "never.bias"));
      const auto ours = net.parameters(), wanted = stock.parameters();
      for (size_t i = 0; i < ours.size(); ++i)
        EXPECT_TRUE(at::allclose(ours[i], wanted[i], 1e-5, 1e-6))
            << "level " << level << ", parameter " << i;
    }
  });
}

void add_up_at_every_level(Communicator& comm, const UpdateOptions& update) {
  std::vector<Tensor> first;
  for (int level : {0, 1, 2}) {
    Net net;
    Sharded sharded(
        net, comm,
        {.level = level, .update = update, .clip = 0.1, .bucket_bytes = 4096});
    for (int64_t step = 0; step < 3; ++step) {
      sharded.accumulate(net.forward(rows(comm.rank(), step)).square().mean(), 3);
      sharded.backward(net.forward(rows(comm.rank(), step + 9)).square().mean(), 2);
      sharded.step(0.5);
    }
    std::vector<Tensor> weights;
    for (auto& parameter : net.parameters())
      weights.push_back(parameter.detach().clone());
    if (first.empty()) first = weights;
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(at::allclose(weights[i], first[i], 1e-5, 1e-6))
          << update.name << ' ' << level << ' ' << i;
  }
}

TEST_P(ShardedTest, PartsOfAStepAndClippingAddUpAtEveryLevel) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const char* name : {"sgd", "lars"})
      add_up_at_every_level(comm, {.name = name, .trust = 0.1});
  });
}

TEST_P(ShardedTest, RatesOfTensorsAreTheSameAtEveryLevel) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (int level : {0, 1, 2}) {
      Net net;
      const Tensor before = net.first->weight.detach().clone();
      Sharded sharded(
          net, comm,
          {.level = level, .update = {.name = "lamb"}, .bucket_bytes = 4096});
      sharded.backward(net.forward(rows(comm.rank(), 0)).square().mean(1).mean(),
                       comm.rank() + 1);
      sharded.step(0.01);
      // Without weight decay a step of lamb moves a tensor by the rate of its norm.
      const Tensor moved = (net.first->weight.detach() - before).norm() / before.norm();
      EXPECT_NEAR(moved.item<double>(), 0.01, 1e-5) << level;
    }
  });
}

TEST_P(ShardedTest, WhatAModuleCannotHaveIsRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Net net;
    EXPECT_THROW(Sharded(net, comm, {.level = 3}), ConfigError);
    Net wide;
    wide.to(at::kDouble);
    EXPECT_THROW(Sharded(wide, comm), ConfigError);
  });
}

std::vector<test::World> sharded_worlds() {
  std::vector<test::World> all;
  for (int size : {1, 2, 3}) all.push_back({.backend = "local", .size = size});
  all.push_back({.backend = "shm", .size = 3, .kind = test::Kind::kProcesses});
  all.push_back({.backend = "gloo", .size = 3, .kind = test::Kind::kProcesses});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShardedTest, testing::ValuesIn(sharded_worlds()),
                         test::world_name);

}  // namespace
}  // namespace cohort
