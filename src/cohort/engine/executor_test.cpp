// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/executor.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/engine/agreement.h"
#include "cohort/layers.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/generator.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kSlices = 5;
constexpr int64_t kSamples = 11;  // uneven slices: 3, 2, 2, 2, 2

Batch samples(const Chain&, int64_t begin, int64_t end) {
  const Tensor all = at::arange(kSamples * 28 * 28, at::kFloat)
                         .mul(0.37)
                         .sin()
                         .reshape({kSamples, 1, 28, 28});
  const Tensor labels = at::arange(kSamples).remainder(10);
  return Batch::of(
      {{"input", all.slice(0, begin, end)}, {"target", labels.slice(0, begin, end)}});
}

// Slice s of the batch of `count` samples; the last ones may be empty.
Batch slice_of(const Chain& chain, int slice, int64_t count) {
  const int64_t base = count / kSlices, extra = count % kSlices;
  const int64_t begin = slice * base + std::min<int64_t>(slice, extra);
  return samples(chain, begin, begin + base + (slice < extra ? 1 : 0));
}

struct Outcome {
  std::vector<double> losses;
  std::vector<Tensor> parameters;
};

// Three steps of SGD, the third with a short batch that leaves slices empty.
Outcome train(Chain& chain, Communicator& comm, bool overlap = true) {
  const auto rule = make_sgd({.momentum = 0.9});
  Schedule schedule = generate(specs_of(chain), {.dp = comm.size()},
                               {.slices = kSlices,
                                .bucket_bytes = 400'000,
                                .overlap_updates = overlap,
                                .shares_memory = shares_memory(comm)});
  Executor executor(chain, std::move(schedule), *rule, comm,
                    {.decay = {.weight_decay = 0.01}});
  Outcome outcome;
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t count = step == 2 ? 3 : kSamples;
    const StepResult result =
        executor.run({.step = step, .rate = 0.05, .batch = [&](int slice) {
                        return slice_of(chain, slice, count);
                      }});
    EXPECT_EQ(result.count, count);
    outcome.losses.push_back(result.loss);
  }
  for (const auto& [name, tensor] : chain.parameters())
    outcome.parameters.push_back(tensor.detach().clone());
  return outcome;
}

// The same three steps in stock LibTorch: one graph, mean loss, SGD by its formula.
Outcome train_stock(Chain& chain) {
  Outcome outcome;
  std::vector<Tensor> velocity;
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = samples(chain, 0, step == 2 ? 3 : kSamples);
    Values values{batch.at("input")};
    Context context;
    for (auto& block : chain.blocks) values = block->forward(values, context);
    const Tensor loss = at::cross_entropy_loss(values[0], batch.at("target"));
    loss.backward();
    outcome.losses.push_back(loss.item<double>());
    const c10::NoGradGuard no_grad;
    size_t i = 0;
    for (const auto& [name, tensor] : chain.parameters()) {
      const Tensor gradient = tensor.grad() + 0.01 * tensor;
      if (step == 0) velocity.push_back(at::zeros_like(tensor));
      velocity[i].mul_(0.9).add_(gradient);
      tensor.sub_(velocity[i], 0.05);
      tensor.mutable_grad().reset();
      ++i;
    }
  }
  for (const auto& [name, tensor] : chain.parameters())
    outcome.parameters.push_back(tensor.detach().clone());
  return outcome;
}

class ExecutorTest : public testing::TestWithParam<test::World> {};

TEST_P(ExecutorTest, AnyNumberOfRanksTrainsAsStockLibTorchDoes) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain stock_chain = make_cnn({.width = 4}, {.seed = 5});
    const Outcome stock = train_stock(stock_chain);
    Chain chain = make_cnn({.width = 4}, {.seed = 5});
    const Outcome ours = train(chain, comm);
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(ours.losses[i], stock.losses[i], 1e-5);
    for (size_t i = 0; i < stock.parameters.size(); ++i)
      EXPECT_LT((ours.parameters[i] - stock.parameters[i]).abs().max().item<float>(),
                1e-5)
          << "parameter " << i;
  });
}

TEST_P(ExecutorTest, ReplicasStayEqualToTheBit) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain chain = make_cnn({.width = 4}, {.seed = 5});
    for (const Tensor& mine : train(chain, comm).parameters) {
      Tensor first = mine.clone();
      comm.broadcast(first, 0).wait();
      EXPECT_TRUE(first.equal(mine));
    }
  });
}

TEST_P(ExecutorTest, UpdatesBehindBackwardGiveTheSameWeights) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain overlapped = make_cnn({.width = 4}, {.seed = 5});
    Chain strict = make_cnn({.width = 4}, {.seed = 5});
    const Outcome a = train(overlapped, comm, true);
    const Outcome b = train(strict, comm, false);
    for (size_t i = 0; i < a.parameters.size(); ++i)
      EXPECT_TRUE(a.parameters[i].equal(b.parameters[i]));
  });
}

TEST_P(ExecutorTest, StartsFromTheWeightsOfRankZero) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain chain = make_cnn({.width = 4}, {.seed = 100u + comm.rank()});
    const Chain first = make_cnn({.width = 4}, {.seed = 100});
    const auto rule = make_sgd({});
    Executor executor(
        chain, generate(specs_of(chain), {.dp = comm.size()}, {.slices = kSlices}),
        *rule, comm, {});
    const auto ours = chain.parameters(), wanted = first.parameters();
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(ours[i].tensor.equal(wanted[i].tensor)) << ours[i].name;
  });
}

TEST_P(ExecutorTest, RunningStatisticsAreThoseOfAllSlicesEverywhere) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain chain = make_resnet({.depths = {1}, .width = 4, .classes = 3}, {});
    const auto rule = make_sgd({});
    Executor executor(
        chain, generate(specs_of(chain), {.dp = comm.size()}, {.slices = kSlices}),
        *rule, comm, {});
    const auto batch = [](int slice) {
      return Batch::of({{"input", at::arange(2 * 3 * 32 * 32, at::kFloat)
                                      .add(1000.0 * slice)
                                      .sin()
                                      .reshape({2, 3, 32, 32})},
                        {"target", at::arange(2)}});
    };
    executor.run({.step = 0, .rate = 0.0, .batch = batch});
    // bn1 of the stem, folded by hand in slice order.
    Chain alone = make_resnet({.depths = {1}, .width = 4, .classes = 3}, {});
    Tensor mean = at::zeros({4});
    for (int s = 0; s < kSlices; ++s) {
      std::vector<Statistic> statistics;
      Context context{.statistics = &statistics};
      alone.blocks[0]->forward({batch(s).at("input")}, context);
      mean.mul_(0.9).add_(statistics[0].value, 0.1);
    }
    EXPECT_TRUE(at::allclose(chain.buffers()[0].tensor, mean, 1e-5, 1e-7));
  });
}

TEST_P(ExecutorTest, OneRankAskedToStopIsHeardByAll) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain chain = make_linear_stack({.width = 16, .depth = 2}, {});
    const auto rule = make_sgd({});
    Executor executor(
        chain, generate(specs_of(chain), {.dp = comm.size()}, {.slices = comm.size()}),
        *rule, comm, {});
    const auto batch = [](int) { return Batch::of({{"input", at::ones({2, 16})}}); };
    EXPECT_FALSE(executor.run({.step = 0, .batch = batch}).stop);
    const bool last = comm.rank() + 1 == comm.size();
    EXPECT_TRUE(executor.run({.step = 1, .batch = batch, .stop = last}).stop);
  });
}

// float16 overflows at 65,504: such a step is left out on every rank, the scale falls,
// and the next one counts.
TEST_P(ExecutorTest, AStepThatOverflowsIsSkippedEverywhere) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Chain chain = make_linear_stack({.width = 16, .depth = 2}, {});
    const auto rule = make_sgd({});
    Executor executor(
        chain,
        generate(specs_of(chain), {.dp = comm.size()},
                 {.slices = comm.size(),
                  .vote = true,
                  .precision = {.compute = at::kHalf, .reduce = at::kHalf}}),
        *rule, comm, {.loss_scale = {.initial = 0x1p20}});
    const auto before = test::gathered_weights(executor, comm);
    std::vector<Tensor> first;
    for (const auto& weight : before) first.push_back(weight.tensor.clone());
    const auto batch = [](int) { return Batch::of({{"input", at::ones({2, 16})}}); };
    EXPECT_TRUE(executor.run({.step = 0, .rate = 0.1, .batch = batch}).skipped);
    const auto after = test::gathered_weights(executor, comm);
    for (size_t i = 0; i < after.size(); ++i)
      EXPECT_TRUE(after[i].tensor.equal(first[i])) << after[i].name;
    int64_t step = 1;
    while (executor.run({.step = step, .rate = 0.1, .batch = batch}).skipped) ++step;
    EXPECT_LT(step, 20);
  });
}

// Times that came back from a step: what it waits for comes before an action, lanes are
// first in first out, and nothing ends before it begins.
void expect_in_order(const Role& role, const std::vector<ActionTime>& times) {
  ASSERT_EQ(times.size(), role.actions.size());
  std::map<int, double> lane_ends;
  for (size_t i = 0; i < times.size(); ++i) {
    const Action& action = role.actions[i];
    EXPECT_LE(times[i].begin, times[i].end) << i;
    EXPECT_GE(times[i].begin, lane_ends[action.lane]) << i;
    for (int wait : action.waits) EXPECT_GE(times[i].begin, times[wait].end) << i;
    lane_ends[action.lane] = times[i].end;
  }
  EXPECT_GT(times.back().end, 0);
}

TEST_P(ExecutorTest, TimesOfAStepAreInTheOrderOfItsLanes) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (int shard = 0; shard <= 3; ++shard)
      for (bool in_turn : {false, true}) {
        Chain chain = make_cnn({.width = 4}, {.seed = 5});
        const auto rule = make_sgd({});
        Executor executor(chain,
                          generate(specs_of(chain), {.dp = comm.size(), .shard = shard},
                                   {.slices = kSlices, .bucket_bytes = 100'000}),
                          *rule, comm, {});
        executor.run(
            {.rate = 0.05,
             .batch = [&](int slice) { return slice_of(chain, slice, kSamples); },
             .in_turn = in_turn});
        expect_in_order(executor.role(), executor.times());
      }
  });
}

TEST_P(ExecutorTest, RanksWithDifferentProgramsNeverStart) {
  if (GetParam().size == 1) return;  // nobody to differ from
  test::run_ranks(GetParam(), [](Communicator& comm) {
    EXPECT_THAT(test::message_of<ConfigError>(
                    [&] { require_equal(comm, comm.rank() == 1 ? 7 : 8, "schedule"); }),
                testing::HasSubstr("schedule of rank 1 is not that"));
  });
}

// Linear layers, the last as wide as `width`; `name` is that of the last.
Chain layers(const std::string& name, int64_t width, bool has_more = false) {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    TensorLists tensors;
    const Linear linear(tensors, name, in, out, {});
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        name, std::move(tensors),
        [linear](const Tensor& x, Context& context) { return linear(x, context); },
        fields_of_layer(static_cast<int>(chain.blocks.size()))));
  };
  add("first", 4, 6);
  add(name, 6, width);
  if (has_more) add("third", width, width);
  return chain;
}

// What the executor says on each rank where rank 1 alone has `odd`.
void expect_refused(const test::World& world, const std::function<Chain()>& odd,
                    const std::string& what) {
  test::run_ranks(world, [&](Communicator& comm) {
    Chain chain = comm.rank() == 1 ? odd() : layers("second", 3);
    const auto rule = make_sgd({});
    Schedule schedule =
        generate(specs_of(chain), {.dp = comm.size()}, {.slices = comm.size()});
    try {
      Executor executor(chain, std::move(schedule), *rule, comm, {});
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      const std::string line = error.what();
      EXPECT_THAT(line, testing::HasSubstr(
                            "[engine] the model of rank 1 is not that of rank 0: " +
                            what + "; legal: "));
      EXPECT_THAT(line, testing::Not(testing::HasSubstr("\n")));
    }
  });
}

TEST_P(ExecutorTest, RanksWithDifferentBlocksAreToldWhichDiffers) {
  if (GetParam().size == 1) return;  // nobody to differ from
  expect_refused(
      GetParam(), [] { return layers("second", 5); },
      "block 1 (second) has second.weight [5, 6], and on rank 0 "
      "second.weight [3, 6]");
  expect_refused(
      GetParam(), [] { return layers("other", 3); },
      "block 1 is other, and on rank 0 second");
  expect_refused(
      GetParam(), [] { return layers("second", 3, /*has_more=*/true); },
      "block 2 is third, and on rank 0 none");
}

std::vector<test::World> worlds() {
  std::vector<test::World> all;
  for (int size : {1, 2, 3, 5}) all.push_back({.backend = "local", .size = size});
  all.push_back({.backend = "shm", .size = 3, .kind = test::Kind::kProcesses});
  all.push_back({.backend = "gloo", .size = 3, .kind = test::Kind::kProcesses});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Worlds, ExecutorTest, testing::ValuesIn(worlds()),
                         test::world_name);

}  // namespace
}  // namespace cohort
