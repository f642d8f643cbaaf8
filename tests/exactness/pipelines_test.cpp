// SPDX-License-Identifier: Apache-2.0
// The weights do not depend on the order in which a pipeline takes its slices, nor on
// where its stages are cut, also where they share a parameter.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/executor.h"
#include "cohort/layers.h"
#include "cohort/nn/models.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int kPipeSlices = 8;
constexpr int64_t kPipeWidth = 12;

Chain deep_mlp() {
  return make_mlp({.inputs = kPipeWidth, .width = 16, .depth = 8, .dropout = 0.1},
                  {.seed = 5});
}

// The first and the last block have one weight; between them are other layers.
Chain tied_chain() {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  const LayerOptions layers{.seed = 5};
  TensorLists first;
  const Tensor tied =
      first.add_parameter("tied", at::arange(kPipeWidth * kPipeWidth, at::kFloat)
                                      .mul(0.37)
                                      .sin()
                                      .mul(0.2)
                                      .reshape({kPipeWidth, kPipeWidth}));
  TensorLists last;
  last.parameters = first.parameters;
  last.cuts = first.cuts;
  const auto add = [&](std::string name, TensorLists lists, ForwardFunction forward,
                       std::vector<std::string> fields = {}) {
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        std::move(name), std::move(lists), std::move(forward), std::move(fields)));
  };
  add("embed", std::move(first),
      [=](const Tensor& x, Context&) { return x.mm(tied).relu(); }, {"input"});
  for (int b = 0; b < 6; ++b) {
    TensorLists lists;
    const Linear linear(lists, "l" + std::to_string(b), kPipeWidth, kPipeWidth, layers);
    add("hidden " + std::to_string(b), std::move(lists),
        [=](const Tensor& x, Context& context) {
          return x + linear(x, context).relu();
        });
  }
  add("head", std::move(last),
      [=](const Tensor& x, Context&) { return x.mm(tied.t()); });
  return chain;
}

// Over sequences of any length: a word at a time, and their mean at the end.
Chain sequence_chain() {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  const LayerOptions layers{.seed = 5};
  for (int b = 0; b < 8; ++b) {
    TensorLists lists;
    const Linear linear(lists, "l" + std::to_string(b), kPipeWidth, kPipeWidth, layers);
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        "block " + std::to_string(b), std::move(lists),
        [=](const Tensor& x, Context& context) {
          const Tensor y = x + linear(x, context).relu();
          return b == 7 ? y.mean(1) : y;
        },
        b == 0 ? std::vector<std::string>{"input"} : std::vector<std::string>{}));
  }
  return chain;
}

struct PipeWay {
  Chain (*make)() = &deep_mlp;
  const char* schedule = "1f1b";
  int pp = 1;
  int dp = 1;
  int shard = 0;
  const char* recompute = "none";
  bool elastic = false;
  bool clip = false;
  const char* cut = "auto";
  std::string backend = "local";
  bool exact = true;
  int replicate = 1;
  const char* rule = "sgd";
  int64_t lengths = 0;  // different lengths of sequences; 0: samples are no sequences
};

std::ostream& operator<<(std::ostream& out, const PipeWay& way) {
  return out << way.backend << ' ' << way.schedule << " pp=" << way.pp
             << " dp=" << way.dp << " shard=" << way.shard
             << " recompute=" << way.recompute << " elastic=" << way.elastic
             << " clip=" << way.clip << " cut=" << way.cut << ' ' << way.rule
             << " lengths=" << way.lengths;
}

// `length`: of the samples as sequences; 0: they are none.
Batch slice_of_pipe(int slice, int64_t count, int64_t length) {
  const int64_t begin = slice * count / kPipeSlices,
                end = (slice + 1) * count / kPipeSlices;
  std::vector<int64_t> ids;
  for (int64_t i = begin; i < end; ++i) ids.push_back(i);
  const Tensor rows = at::arange(begin * kPipeWidth, end * kPipeWidth, at::kFloat)
                          .reshape({end - begin, kPipeWidth});
  const Tensor input =
      (length == 0 ? rows : rows.unsqueeze(1) + at::arange(length).view({1, -1, 1}))
          .mul(0.37)
          .sin();
  return Batch::of({{"input", input}, {"target", at::arange(begin, end).remainder(10)}},
                   ids);
}

// The hash, and the norm of the last gradient.
std::string trained(const PipeWay& way) {
  const test::TempFolder folder;
  const std::string path = folder / "result";
  const test::World world{
      .backend = way.backend,
      .size = way.pp * way.dp,
      .kind = way.backend == "local" ? test::Kind::kThreads : test::Kind::kProcesses};
  test::run_ranks(world, [&](Communicator& comm) {
    at::set_num_threads(1);
    Chain chain = way.make();
    const auto rule = make_update_rule({.name = way.rule, .trust = 0.1});
    const GeneratorOptions options{
        .slices = kPipeSlices,
        .pipeline = parse_pipeline({.schedule = way.schedule, .cut = way.cut}),
        .bucket_bytes = 8'000,
        .clip = way.clip,
        .tensor_sums = rule->reductions() > 0,
        .elastic = way.elastic,
        .recompute = BlockChoice::parse(way.recompute, "test"),
        .exact = way.exact,
        .optimizer_states = static_cast<int>(rule->states().size()),
        .shares_memory = way.backend != "gloo"};
    const Schedule schedule = generate(
        specs_of(chain),
        {.dp = way.dp, .pp = way.pp, .shard = way.shard, .replicate = way.replicate},
        options);
    check(schedule, {.elastic = way.elastic});
    Executor executor(chain, schedule, *rule, comm, {.clip = way.clip ? 0.05 : 0.0});
    StepResult result;
    const auto length_of = [&](int64_t step, int slice) {
      return way.lengths == 0 ? 0 : 3 + (step + slice / 2) % way.lengths;
    };
    for (int64_t step = 0; step < (way.lengths == 0 ? 3 : 6); ++step)
      result = executor.run({.step = step, .rate = 0.05, .batch = [&](int slice) {
                               return slice_of_pipe(slice, step == 2 ? 5 : 19,
                                                    length_of(step, slice));
                             }});
    EXPECT_EQ(executor.compare_replicas().what, "");
    const uint64_t hash = executor.weights_hash();
    if (comm.rank() == 0) std::ofstream(path) << hash << '/' << result.loss;
  });
  std::string text;
  std::ifstream(path) >> text;
  return text;
}

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
constexpr const char* kChoices[] = {"none", "all", "every=2", "blocks=1-2"};

class Pipelines : public testing::TestWithParam<Chain (*)()> {};

// In the short form half of all ways: every three of schedule, stages, ranks and shard
// level meet, and every one of each with every choice of what is recomputed.
TEST_P(Pipelines, NoScheduleChangesTheWeights) {
  const std::string wanted = trained({.make = GetParam()});
  ASSERT_FALSE(wanted.empty());
  for (int schedule = 0; schedule < 4; ++schedule)
    for (const int pp : {2, 4})
      for (const int dp : {1, 2})
        for (const int shard : {0, 1, 2, 3}) {
          if ((schedule + pp / 2 + dp + shard) % 2 != 0 && !test::is_long()) continue;
          const PipeWay way{.make = GetParam(),
                            .schedule = kSchedules[schedule],
                            .pp = pp,
                            .dp = dp,
                            .shard = shard,
                            .recompute = kChoices[(schedule + shard) % 4]};
          EXPECT_EQ(trained(way), wanted) << way;
        }
}

TEST_P(Pipelines, DataParallelRanksAloneChangeNothing) {
  const std::string wanted = trained({.make = GetParam()});
  for (const char* backend : {"local", "shm", "gloo"})
    for (const int shard : {0, 1, 2, 3}) {
      const PipeWay way{
          .make = GetParam(), .dp = 2, .shard = shard, .backend = backend};
      EXPECT_EQ(trained(way), wanted) << way;
    }
}

// Every choice of what is recomputed meets every schedule, and one rank and two, with
// elastic steps and without; every shard level both kinds of steps.
TEST_P(Pipelines, ElasticAndClippedStepsChangeNoMore) {
  const std::string wanted = trained({.make = GetParam(), .clip = true});
  EXPECT_NE(wanted, trained({.make = GetParam()}));
  for (int schedule = 0; schedule < 4; ++schedule)
    for (const int dp : {1, 2})
      for (const bool elastic : {false, true}) {
        const int kind = elastic ? 1 : 0;
        const PipeWay way{.make = GetParam(),
                          .schedule = kSchedules[schedule],
                          .pp = 2,
                          .dp = dp,
                          .shard = dp == 1 ? 0 : (schedule + 2 * kind) % 4,
                          .recompute = kChoices[(schedule + 2 * dp + kind) % 4],
                          .elastic = elastic,
                          .clip = true};
        EXPECT_EQ(trained(way), wanted) << way;
      }
}

TEST_P(Pipelines, EveryBackendAndEveryCutGivesTheSameBits) {
  const std::string wanted = trained({.make = GetParam()});
  for (const char* backend : {"shm", "gloo"})
    for (const char* schedule : kSchedules) {
      const PipeWay way{.make = GetParam(),
                        .schedule = schedule,
                        .pp = 2,
                        .dp = 2,
                        .shard = 2,
                        .backend = backend};
      EXPECT_EQ(trained(way), wanted) << way;
    }
  const bool tied = GetParam() == &tied_chain;
  for (const char* cut : {"0,1-", "0-4,5-"}) {
    const std::string whole = std::string(cut) + (tied ? "7" : "8");
    const PipeWay way{.make = GetParam(), .pp = 2, .cut = whole.c_str()};
    EXPECT_EQ(trained(way), wanted) << way;
  }
}

TEST_P(Pipelines, RatesOfTensorsAndReplicasAreTheSame) {
  const std::string wanted = trained({.make = GetParam(), .rule = "lamb"});
  for (const char* schedule : kSchedules) {
    const PipeWay way{
        .make = GetParam(), .schedule = schedule, .pp = 2, .rule = "lamb"};
    EXPECT_EQ(trained(way), wanted) << way;
  }
  const PipeWay hybrid{.make = GetParam(),
                       .schedule = "zero-bubble",
                       .pp = 2,
                       .dp = 4,
                       .shard = 2,
                       .replicate = 2,
                       .rule = "lamb"};
  EXPECT_EQ(trained(hybrid), wanted) << hybrid;
}

// Only the first place of a pipeline knows that a sequence has another length. Every
// choice of what is recomputed meets every schedule, number of stages and of lengths.
TEST(Sequences, OfAnotherLengthInEachSliceGiveTheSameBits) {
  const auto way_of = [](int64_t lengths) {
    return PipeWay{.make = &sequence_chain, .lengths = lengths};
  };
  int turn = 0;
  for (const int64_t lengths : {1, 2, 5}) {
    const std::string wanted = trained(way_of(lengths));
    ASSERT_FALSE(wanted.empty());
    for (int schedule = 0; schedule < 4; ++schedule)
      for (const int pp : {2, 4}) {
        PipeWay way = way_of(lengths);
        way.schedule = kSchedules[schedule];
        way.pp = pp;
        way.dp = pp == 2 ? 2 : 1;
        way.shard = pp == 2 ? (schedule + turn) % 4 : 0;
        way.recompute = kChoices[(schedule + pp / 2 + 2 * turn) % 4];
        EXPECT_EQ(trained(way), wanted) << way;
      }
    ++turn;
  }
}

TEST(Sequences, OfAnotherLengthGoOverEveryBackendAndThroughElasticSteps) {
  const std::string wanted = trained({.make = &sequence_chain, .lengths = 3});
  for (const char* backend : {"shm", "gloo"})
    for (const char* schedule : kSchedules) {
      const PipeWay way{.make = &sequence_chain,
                        .schedule = schedule,
                        .pp = 2,
                        .elastic = true,
                        .backend = backend,
                        .lengths = 3};
      EXPECT_EQ(trained(way), wanted) << way;
    }
}

// The order of sums is another one, and nothing else.
TEST_P(Pipelines, WithoutExactTheLossIsTheSame) {
  const auto loss_of = [](const PipeWay& way) {
    const std::string result = trained(way);
    return std::stod(result.substr(result.find('/') + 1));
  };
  const double wanted = loss_of({.make = GetParam()});
  for (const char* schedule : kSchedules)
    for (const int shard : {0, 1, 2, 3}) {
      const PipeWay way{.make = GetParam(),
                        .schedule = schedule,
                        .pp = 2,
                        .dp = 2,
                        .shard = shard,
                        .exact = false};
      EXPECT_NEAR(loss_of(way), wanted, 1e-5) << way;
    }
  EXPECT_NEAR(loss_of({.make = GetParam(), .exact = false}), wanted, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Chains, Pipelines, testing::Values(&deep_mlp, &tied_chain),
                         [](const auto& info) {
                           return info.index == 0 ? std::string("mlp") : "tied";
                         });

}  // namespace
}  // namespace cohort
