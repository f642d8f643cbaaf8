// SPDX-License-Identifier: Apache-2.0
#include "cohort/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "cohort/core/error.h"
#include "support/ranks.h"
#include "support/sine_weights.h"

namespace cohort {
namespace {

// A module with a branch that is not always taken, and a layer that never is.
struct Branching : torch::nn::Module {
  Branching() {
    register_module("common", common);
    register_module("branch", branch);
    register_module("never", never);
    test::fill_with_sines(parameters());
  }
  Tensor forward(const Tensor& x, bool take_branch) {
    const Tensor y = common(x).relu();
    return take_branch ? branch(y) + y : y;
  }
  torch::nn::Linear common{6, 6}, branch{6, 6}, never{6, 6};
};

// Rank r has r + 1 rows of one long input; world 3 has 1 + 2 + 3 = 6 of them.
Tensor rows(int rank) {
  const int64_t before = rank * (rank + 1) / 2;
  return at::arange(before * 6, (before + rank + 1) * 6, at::kFloat)
      .mul(0.1)
      .cos()
      .reshape({rank + 1, 6});
}

// Gradients of the mean over all rows, in one process.
std::vector<Tensor> stock_gradients(int ranks, bool branch_on_all) {
  Branching module;
  int64_t count = 0;
  Tensor sum = at::zeros({});
  for (int r = 0; r < ranks; ++r) {
    sum = sum + module.forward(rows(r), branch_on_all || r == 0).square().sum();
    count += r + 1;
  }
  (sum / count).backward();
  std::vector<Tensor> gradients;
  for (auto& parameter : module.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

void expect_close(const std::vector<Tensor>& ours, const std::vector<Tensor>& stock) {
  ASSERT_EQ(ours.size(), stock.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), stock[i].defined()) << i;
    if (!ours[i].defined()) continue;
    EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-6)) << i;
  }
}

std::vector<Tensor> gradients_of(Branching& module) {
  std::vector<Tensor> all;
  for (auto& parameter : module.parameters()) all.push_back(parameter.grad());
  return all;
}

class DataParallelTest : public testing::TestWithParam<test::World> {};

TEST_P(DataParallelTest, UnequalShardsWeighAsTheirSamples) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    DataParallel parallel(module, comm, {.bucket_bytes = 200});
    for (int step = 0; step < 3; ++step) {
      const Tensor y = module.forward(rows(comm.rank()), true);
      parallel.backward(y.square().sum() / (comm.rank() + 1), comm.rank() + 1);
      expect_close(gradients_of(module), stock_gradients(comm.size(), true));
    }
  });
}

TEST_P(DataParallelTest, AParameterUnusedOnSomeRanksCountsAsZeroThere) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    DataParallel parallel(module, comm, {.bucket_bytes = 200});
    const Tensor y = module.forward(rows(comm.rank()), comm.rank() == 0);
    parallel.backward({y.square().sum(), double(comm.rank() + 1)});
    expect_close(gradients_of(module), stock_gradients(comm.size(), false));
    EXPECT_THAT(parallel.unused(),
                testing::UnorderedElementsAre("never.weight", "never.bias"));
  });
}

TEST_P(DataParallelTest, AccumulationIsTheSameStepInParts) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    DataParallel parallel(module, comm, {.bucket_bytes = 200});
    const Tensor x = rows(comm.rank());
    for (int step = 0; step < 2; ++step) {
      for (int64_t i = 0; i + 1 < x.size(0); ++i)
        parallel.accumulate(
            {module.forward(x.narrow(0, i, 1), true).square().sum(), 1});
      const Tensor last = x.narrow(0, x.size(0) - 1, 1);
      parallel.backward({module.forward(last, true).square().sum(), 1});
      expect_close(gradients_of(module), stock_gradients(comm.size(), true));
    }
  });
}

TEST_P(DataParallelTest, ARankWithoutSamplesTakesPart) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    DataParallel parallel(module, comm);
    if (comm.rank() == 0) {
      const double loss =
          parallel.backward({module.forward(rows(0), true).square().sum(), 1});
      EXPECT_GT(loss, 0);
    } else {
      parallel.backward(WeightedLoss{});
    }
    expect_close(gradients_of(module), stock_gradients(1, true));
  });
}

TEST_P(DataParallelTest, EveryRankStartsWithTheWeightsOfRankZero) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    for (auto& parameter : module.parameters()) parameter.data().add_(comm.rank());
    DataParallel parallel(module, comm);
    const Branching first;
    EXPECT_TRUE(module.common->weight.equal(first.common->weight));
  });
}

// LibTorch's zero_grad() detaches gradients in place, which views refuse.
TEST_P(DataParallelTest, ClearingGradientsByHandDoesNoHarm) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Branching module;
    DataParallel parallel(module, comm);
    for (bool set_to_none : {true, false, true}) {
      const Tensor y = module.forward(rows(comm.rank()), true);
      module.zero_grad(set_to_none);
      parallel.backward({y.square().sum(), double(comm.rank() + 1)});
      expect_close(gradients_of(module), stock_gradients(comm.size(), true));
    }
  });
}

TEST_P(DataParallelTest, ModelsThatDifferAreRefused) {
  if (GetParam().size == 1) return;  // nobody to differ from
  test::run_ranks(GetParam(), [](Communicator& comm) {
    torch::nn::LinearImpl module(4, comm.rank() == 1 ? 5 : 4);
    EXPECT_THROW(DataParallel(module, comm), ConfigError);
  });
}

std::vector<test::World> data_parallel_worlds() {
  std::vector<test::World> all;
  for (int size : {1, 2, 3, 5}) all.push_back({.backend = "local", .size = size});
  all.push_back({.backend = "shm", .size = 3, .kind = test::Kind::kProcesses});
  all.push_back({.backend = "gloo", .size = 2, .kind = test::Kind::kProcesses});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelTest,
                         testing::ValuesIn(data_parallel_worlds()), test::world_name);

}  // namespace
}  // namespace cohort
