// SPDX-License-Identifier: Apache-2.0
// What a run tells of a model that is no classifier: a small one of tokens.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>

#include "cohort/layers.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int64_t kTokens = 5, kWords = 7, kWidth = 6;

// Sentences in which each word follows from the one before, mostly.
class Sentences final : public Dataset {
 public:
  int64_t size() const override { return 24; }
  std::span<const std::string> fields() const override { return fields_; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    asked.insert({fields.begin(), fields.end()});
    Batch batch = empty_batch(*this, ids, fields);
    const Tensor starts =
        at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
    const Tensor words = (starts.view({-1, 1}) + at::arange(kTokens + 1) * 2) % kWords;
    for (auto& [name, tensor] : batch.fields)
      tensor = name == "mask"     ? starts.view({-1, 1, 1}).remainder(3).to(at::kFloat)
               : name == "tokens" ? words.narrow(1, 0, kTokens).contiguous()
                                  : words.narrow(1, 1, kTokens).contiguous();
    return batch;
  }
  std::string describe() const override { return "sentences"; }

  mutable std::set<std::set<std::string>> asked;

 private:
  const std::vector<std::string> fields_{"mask", "next", "tokens"};
};

// Takes a field behind the values of the block before it.
class MaskedLayer final : public LayerBlock {
 public:
  MaskedLayer() : LayerBlock("hidden", {"mask"}) {
    linear_.emplace(tensors_, "hidden", kWidth, kWidth, LayerOptions{.seed = 3});
  }
  Values forward(const Values& inputs, Context& context) override {
    return {inputs.at(0) + (*linear_)(inputs.at(0), context) * inputs.at(1)};
  }

 private:
  std::optional<Linear> linear_;
};

Chain token_model() {
  Chain chain;
  TensorLists tensors;
  const Tensor table = tensors.add_parameter(
      "table", at::arange(kWords * kWidth, at::kFloat).sin().view({kWords, kWidth}));
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "table", std::move(tensors),
      [table](const Tensor& x, Context&) { return at::embedding(table, x); },
      std::vector<std::string>{"tokens"}));
  chain.blocks.push_back(std::make_unique<MaskedLayer>());
  TensorLists head_tensors;
  const Linear head(head_tensors, "head", kWidth, kWords, {.seed = 3});
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "head", std::move(head_tensors),
      [head](const Tensor& x, Context& context) { return head(x, context); }));
  chain.loss = {
      .function =
          [](const Values& outputs, const Values& fields) {
            return cross_entropy({outputs.at(0).flatten(0, 1)}, fields.at(0).flatten());
          },
      .fields = {"next"},
      .metrics = {
          .perplexity = true, .tokens_per_second = true, .flops_per_step = true}};
  return chain;
}

struct TokenRun {
  Chain chain = token_model();
  Sentences train, valid;
  test::Recorder recorder;

  DoneEvent fit(Communicator& comm, const Layout& layout, bool recompute = false) {
    TrainerOptions options{.batch = 8, .slices = 4, .layout = layout};
    options.epochs = 2;
    options.rate.base = 0.1;
    options.step.exact = true;
    options.step.recompute = recompute;
    options.counted = measure_blocks(chain, train);
    options.counted[1].flops = {.fixed = 0, .per_sample = 1000};
    const std::atomic<int> stop{0};
    Trainer trainer(chain, train, &valid, options, stop);
    train.asked.clear();
    trainer.enter(comm, &recorder);
    return trainer.fit();
  }
};

TEST(TrainerMetrics, OfALanguageModelAreThoseOfTokens) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    TokenRun run;
    const DoneEvent done = run.fit(comm, {});
    ASSERT_EQ(run.recorder.valids.size(), 2u);
    for (const auto& valid : run.recorder.valids) {
      EXPECT_FALSE(valid.accuracy);
      EXPECT_DOUBLE_EQ(valid.perplexity.value(), std::exp(valid.loss));
      EXPECT_LT(*valid.perplexity, kWords);  // nats of a token, not of a sentence
    }
    for (const auto& step : run.recorder.steps)
      EXPECT_NEAR(*step.tokens_per_second / step.samples_per_second, kTokens, 1e-6);
    EXPECT_NEAR(*done.tokens_per_second / done.samples_per_second, kTokens, 1e-6);
    EXPECT_FALSE(done.accuracy);
    EXPECT_EQ(done.flops_per_step, 3 * 1000 * 8);
    EXPECT_EQ(TokenRun().fit(comm, {}, /*recompute=*/true).flops_per_step,
              4 * 1000 * 8);
  });
}

// A field that a block in the middle takes has no gradient, and moves none.
TEST(TrainerMetrics, AFieldOfAMiddleStageChangesNothingInAPipeline) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    TokenRun run;
    const DoneEvent done = run.fit(comm, {.pp = 3});
    const std::vector<std::set<std::string>> by_stage = {
        {"tokens"}, {"mask"}, {"next"}};
    EXPECT_THAT(run.train.asked, testing::ElementsAre(by_stage[comm.rank()]));
    EXPECT_EQ(done.flops_per_step, 3 * 1000 * 8);
    auto solo = comm.split(comm.rank());
    EXPECT_EQ(TokenRun().fit(*solo, {}).weights_hash, done.weights_hash);
  });
}

}  // namespace
}  // namespace cohort
