// SPDX-License-Identifier: Apache-2.0
// What a GPU computes, and the host or the GPU sums and updates, with the host in the
// place of the GPU: it must train as an executor does that knows no device, also where
// the plan has some of the state in the host's memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kDeviceSlices = 5;
constexpr int64_t kSteps = 4;  // the last is short: slices 3 and 4 are empty

struct Way {
  int ranks = 1;
  int shard = 0;
  GeneratorOptions step;
  double clip = 0;
  const char* rule = "adamw";
  int stages = 1;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.ranks << "_ranks_shard" << way.shard << "_"
             << way.step.precision.compute << (way.step.recompute ? "_recompute" : "")
             << (way.step.exact ? "_exact" : "") << (way.step.vote ? "_vote" : "")
             << (way.step.elastic ? "_elastic" : "")
             << (way.step.offload ? "_offload" : "")
             << (way.step.offload_parameters ? "_parameters" : "")
             << (way.clip > 0 ? "_clip" : "") << "_" << way.rule
             << (way.stages > 1 ? "_staged" : "");
}

Batch slice_of(int64_t step, int slice, at::IntArrayRef shape) {
  const int64_t rows = step + 1 == kSteps ? (slice < 3 ? 1 : 0) : 2 + slice % 2;
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  const Tensor input = at::zeros(sizes);
  input.view({-1}).copy_(at::arange(input.numel(), at::kFloat)
                             .add(static_cast<double>(31 * slice + 7 * step))
                             .mul(0.37)
                             .sin());
  Batch batch = Batch::of(
      {{"input", input}, {"target", at::arange(rows).add(slice + step).remainder(10)}});
  for (int64_t i = 0; i < rows; ++i) batch.ids.push_back(100 * step + 10 * slice + i);
  return batch;
}

struct DeviceOutcome {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
  uint64_t hash = 0;
  double evaluated = 0;
};

DeviceOutcome train(Communicator& comm, const Way& way, ComputeOn compute_on,
                    Chain chain, at::IntArrayRef shape) {
  const UpdateOptions update{.name = way.rule, .eps = 1e-3, .trust = 0.1};
  const auto rule = make_update_rule(update);
  GeneratorOptions step = way.step;
  step.slices = kDeviceSlices;
  step.bucket_bytes = 4'000;
  step.clip = way.clip > 0;
  step.tensor_sums = rule->reductions() > 0;
  step.optimizer_states = static_cast<int>(rule->states().size());
  const bool on_host = compute_on == ComputeOn::kHost;
  step.memory = on_host ? MemoryIn::kHost : MemoryIn::kDevice;
  step.shares_memory = on_host && shares_memory(comm);
  const Layout layout{
      .dp = comm.size() / way.stages, .pp = way.stages, .shard = way.shard};
  Executor executor(chain, generate(specs_of(chain), layout, step), *rule, comm,
                    {.update = update,
                     .decay = {.weight_decay = 0.01},
                     .clip = way.clip,
                     .seed = 11,
                     .loss_scale = {.initial = 256},
                     .usual_count = 11,
                     .compute_on = compute_on});
  DeviceOutcome outcome;
  constexpr uint64_t kKey = 77;
  for (int64_t i = 0; i < kSteps; ++i) {
    SampleSum expected;
    for (int slice = 0; slice < kDeviceSlices; ++slice)
      expected += sum_samples(kKey, slice_of(i, slice, shape).ids);
    const StepResult result =
        executor.run({.step = i,
                      .rate = 0.01,
                      .batch = [&](int slice) { return slice_of(i, slice, shape); },
                      .sample_key = kKey,
                      .expected = expected});
    EXPECT_FALSE(result.skipped);
    outcome.losses.push_back(result.loss);
  }
  const Schedule forward = generate(specs_of(chain), layout,
                                    {.slices = layout.dp,
                                     .offload_parameters = step.offload_parameters,
                                     .forward_only = true,
                                     .precision = step.precision});
  outcome.evaluated =
      executor.evaluate(forward, slice_of(0, 1, shape)).sum.item<double>();
  outcome.weights = test::gathered_weights(executor, comm);
  outcome.hash = executor.weights_hash();
  return outcome;
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const int ranks : {1, 2, 3})
    for (int shard = 0; shard < (ranks > 1 ? 4 : 1); ++shard) {
      all.push_back({ranks, shard, {}});
      all.push_back({ranks, shard, {.recompute = true, .exact = true}});
      all.push_back({ranks, shard, {.vote = true}, 0.1});
      all.push_back(
          {ranks,
           shard,
           {.precision = {.compute = at::kBFloat16, .reduce = at::kBFloat16}}});
    }
  all.push_back(
      {3, 1, {.vote = true, .precision = {.compute = at::kHalf, .reduce = at::kHalf}}});
  all.push_back({1, 0, {}, 0, "lamb"});
  all.push_back({1, 0, {}, 0.1, "lars"});
  all.push_back({2, 2, {.exact = true}, 0.1, "lars"});
  all.push_back({3,
                 0,
                 {.precision = {.compute = at::kBFloat16, .reduce = at::kBFloat16}},
                 0,
                 "lamb"});
  const auto add_stages = [&](int stages, int copies, GeneratorOptions step,
                              double clip, const char* rule) {
    step.elastic = true;
    for (const int shard : {0, 3})
      if (shard == 0 || copies > 1)
        all.push_back({stages * copies, shard, step, clip, rule, stages});
  };
  add_stages(2, 1, {}, 0, "adamw");
  add_stages(3, 1, {.exact = true}, 0.1, "lamb");
  add_stages(2, 2, {.recompute = true, .exact = true}, 0.1, "lars");
  add_stages(2, 2, {.pipeline = {.order = PipelineOrder::kZeroBubble}, .exact = true},
             0.1, "adamw");
  for (const int ranks : {1, 2})
    for (const bool parameters : {false, true})
      all.push_back(
          {ranks, 0, {.offload = !parameters, .offload_parameters = parameters}});
  return all;
}

class ExecutorDeviceTest : public testing::TestWithParam<Way> {
 protected:
  // A device's state is summed by collectives, and so is the host's over gloo.
  test::World world() const {
    return {
        .backend = "gloo", .size = GetParam().ranks, .kind = test::Kind::kProcesses};
  }
};

TEST_P(ExecutorDeviceTest, TrainsAnMlpWithDropoutToTheSameBits) {
  test::run_ranks(world(), [&](Communicator& comm) {
    const auto model = [] {
      return make_mlp({.inputs = 24, .width = 16, .depth = 3, .dropout = 0.3},
                      {.seed = 5});
    };
    const DeviceOutcome host = train(comm, GetParam(), ComputeOn::kHost, model(), {24});
    const DeviceOutcome staged =
        train(comm, GetParam(), ComputeOn::kStaged, model(), {24});
    EXPECT_THAT(staged.losses, testing::ElementsAreArray(host.losses));
    EXPECT_EQ(staged.evaluated, host.evaluated);
    ASSERT_EQ(staged.weights.size(), host.weights.size());
    for (size_t i = 0; i < host.weights.size(); ++i)
      EXPECT_TRUE(staged.weights[i].tensor.equal(host.weights[i].tensor))
          << host.weights[i].name;
  });
}

class StatisticsDeviceTest : public ExecutorDeviceTest {};

TEST_P(StatisticsDeviceTest, TrainsAModelWithStatisticsAlike) {
  test::run_ranks(world(), [&](Communicator& comm) {
    const auto model = [] {
      return make_resnet(
          {.depths = {1}, .width = 4, .classes = 10, .small_images = true},
          {.seed = 5});
    };
    const DeviceOutcome host =
        train(comm, GetParam(), ComputeOn::kHost, model(), {3, 8, 8});
    const DeviceOutcome staged =
        train(comm, GetParam(), ComputeOn::kStaged, model(), {3, 8, 8});
    const bool wide = GetParam().step.precision.compute == at::kFloat;
    const double bound = wide ? 1e-3 : 5e-2;
    for (size_t i = 0; i < host.losses.size(); ++i)
      EXPECT_NEAR(staged.losses[i], host.losses[i], bound);
    for (size_t i = 0; i < host.weights.size(); ++i)
      EXPECT_TRUE(
          at::allclose(staged.weights[i].tensor, host.weights[i].tensor, bound, bound))
          << host.weights[i].name;
  });
}

// Statistics lie where parameters do: every third way.
std::vector<Way> ways_of_statistics() {
  std::vector<Way> some;
  const auto all = ways();
  for (size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}

INSTANTIATE_TEST_SUITE_P(Ways, ExecutorDeviceTest, testing::ValuesIn(ways()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ways, StatisticsDeviceTest,
                         testing::ValuesIn(test::is_long() ? ways()
                                                           : ways_of_statistics()),
                         testing::PrintToStringParamName());

// Ways to train with all of the state on the device.
std::vector<Way> resident_ways() {
  std::vector<Way> all;
  const auto add = [&](int ranks, int shard, const GeneratorOptions& step, double clip,
                       const char* rule, int stages) {
    all.push_back({ranks, shard, step, clip, rule, stages});
  };
  constexpr Precision kBf16{.compute = at::kBFloat16, .reduce = at::kBFloat16};
  for (const int ranks : {1, 2, 3})
    for (int shard = 0; shard < (ranks > 1 ? 4 : 1); ++shard) {
      add(ranks, shard, {}, 0, "adamw", 1);
      add(ranks, shard, {.elastic = true, .recompute = true, .exact = true}, 0.1,
          "lamb", 1);
      add(ranks, shard, {.vote = true, .precision = kBf16}, 0.1, "adamw", 1);
      add(ranks, shard, {.elastic = true, .precision = kBf16}, 0, "lars", 1);
    }
  add(2, 0, {}, 0, "adamw", 2);
  add(2, 0, {.elastic = true}, 0.1, "lamb", 2);
  add(4, 3, {.elastic = true, .recompute = true, .exact = true}, 0, "lars", 2);
  return all;
}

class OffloadedStateTest : public testing::TestWithParam<Way> {
 protected:
  static void expect_same_bits(const Way& way, const Way& other) {
    test::run_ranks({.backend = "local", .size = way.ranks}, [&](Communicator& comm) {
      const auto model = [] {
        return make_mlp({.inputs = 24, .width = 16, .depth = 3, .dropout = 0.3},
                        {.seed = 5});
      };
      const auto a = train(comm, way, ComputeOn::kStaged, model(), {24});
      const auto b = train(comm, other, ComputeOn::kStaged, model(), {24});
      EXPECT_EQ(a.losses, b.losses);
      EXPECT_EQ(a.hash, b.hash);
      EXPECT_EQ(a.evaluated, b.evaluated);
    });
  }
};

TEST_P(OffloadedStateTest, HasTheBitsOfStateOnTheDevice) {
  Way way = GetParam();
  way.step.offload = true;
  expect_same_bits(way, GetParam());
}

// Several ranks cut their parameters, as at level 3.
TEST_P(OffloadedStateTest, OfParametersHasThoseOfShardLevel3) {
  Way none = GetParam();
  if (none.ranks > none.stages) none.shard = 3;
  Way way = none;
  way.step.offload_parameters = true;
  expect_same_bits(way, none);
}

INSTANTIATE_TEST_SUITE_P(Ways, OffloadedStateTest, testing::ValuesIn(resident_ways()),
                         testing::PrintToStringParamName());

TEST(OffloadedState, SecondCopiesAreMadeAnewFromTheirOwners) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    Chain chain = make_mlp({.inputs = 4, .width = 8, .depth = 1}, {});
    const UpdateOptions update{.name = "adamw"};
    const auto rule = make_update_rule(update);
    Executor executor(chain,
                      generate(specs_of(chain), {.dp = 3, .shard = 2},
                               {.slices = 3,
                                .elastic = true,
                                .offload = true,
                                .memory = MemoryIn::kDevice,
                                .optimizer_states = 2}),
                      *rule, comm,
                      {.update = update, .compute_on = ComputeOn::kStaged});
    for (const auto& piece : executor.state(Holding::kHeld))
      piece.data.add_(comm.rank() + 1);
    EXPECT_NE(executor.compare_replicas().what, "");
    executor.refresh();
    EXPECT_EQ(executor.compare_replicas().what, "");
  });
}

TEST(ExecutorDevice, ABadGradientIsNamedAsOnTheHost) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    Chain chain = make_mlp({.inputs = 4, .width = 8, .depth = 1}, {});
    const auto rule = make_update_rule({.name = "sgd"});
    Executor executor(
        chain,
        generate(specs_of(chain), {.dp = 2},
                 {.slices = 2, .clip = true, .memory = MemoryIn::kDevice}),
        *rule, comm, {.clip = 1, .compute_on = ComputeOn::kStaged});
    const auto batch = [](int slice) {
      Batch made = Batch::of(
          {{"input", at::ones({2, 4})}, {"target", at::zeros({2}, at::kLong)}}, {0, 1});
      if (slice == 1) made.at("input").fill_(std::numeric_limits<float>::quiet_NaN());
      return made;
    };
    EXPECT_THAT(test::message_of<Error>(
                    [&] { executor.run({.step = 0, .rate = 0.1, .batch = batch}); }),
                testing::HasSubstr("step 1: the gradient of"));
  });
}

}  // namespace
}  // namespace cohort
