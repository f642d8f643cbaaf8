// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/json_reporter.h"
#include "cli/text_reporter.h"

namespace cohort::cli {
namespace {

std::string lines_of(Reporter& reporter, const StepEvent& step, const ValidEvent& valid,
                     const DoneEvent& done) {
  testing::internal::CaptureStdout();
  reporter.step(step);
  reporter.valid(valid);
  reporter.done(done);
  return testing::internal::GetCapturedStdout();
}

DoneEvent some_end() {
  return {.steps = 2,
          .epoch = 1,
          .loss = 0.5,
          .samples_per_second = 10,
          .step_ms = 4,
          .first_step_s = 3,
          .peak_memory_bytes = 7,
          .weights_hash = "00"};
}

constexpr StepEvent kStep{
    .step = 1, .epoch = 1, .loss = 2, .rate = 0.5, .samples_per_second = 10};

TEST(Reporters, OfAClassifierTellAccuracy) {
  DoneEvent done = some_end();
  done.accuracy = 0.25;
  const ValidEvent valid{.epoch = 1, .loss = 2, .accuracy = 0.25};
  JsonReporter json(1, "", nullptr);
  EXPECT_EQ(lines_of(json, kStep, valid, done),
            R"({"event":"step","step":1,"loss":2.0,"lr":0.5,"samples_per_second":10.0})"
            "\n"
            R"({"event":"valid","epoch":1,"loss":2.0,"accuracy":0.25})"
            "\n"
            R"({"event":"done","steps":2,"epoch":1,"loss":0.5,"accuracy":0.25,)"
            R"("samples_per_second":10.0,"step_ms":4.0,"first_step_s":3.0,)"
            R"("peak_memory_bytes":7,"restarts":0,"weights_hash":"00"})"
            "\n");
  TextReporter plain({.recipe = "r", .quiet = true});
  EXPECT_EQ(lines_of(plain, kStep, valid, done),
            "epoch 1: validation loss 2.0000, accuracy 25.00 %\n"
            "done: 2 steps, loss 0.5000, accuracy 25.00 %, 10.0 samples/s, 4.00 ms per "
            "step\n"
            "first step after 3.00 s, peak memory 7 B per rank, weights 00\n");
}

TEST(Reporters, OfALanguageModelTellPerplexityAndTokens) {
  StepEvent step = kStep;
  step.tokens_per_second = 40;
  DoneEvent done = some_end();
  done.tokens_per_second = 40;
  done.flops_per_step = 6e9;
  done.mfu = 0.25;
  const ValidEvent valid{.epoch = 1, .loss = 2, .perplexity = 7.5};
  JsonReporter json(1, "", nullptr);
  EXPECT_EQ(
      lines_of(json, step, valid, done),
      R"({"event":"step","step":1,"loss":2.0,"lr":0.5,"samples_per_second":10.0,)"
      R"("tokens_per_second":40.0})"
      "\n"
      R"({"event":"valid","epoch":1,"loss":2.0,"perplexity":7.5})"
      "\n"
      R"({"event":"done","steps":2,"epoch":1,"loss":0.5,"accuracy":null,)"
      R"("samples_per_second":10.0,"tokens_per_second":40.0,"flops_per_step":6e+09,)"
      R"("mfu":0.25,"step_ms":4.0,"first_step_s":3.0,"peak_memory_bytes":7,"restarts":0,)"
      R"("weights_hash":"00"})"
      "\n");
  TextReporter plain({.recipe = "r", .quiet = true});
  EXPECT_EQ(
      lines_of(plain, step, valid, done),
      "epoch 1: validation loss 2.0000, perplexity 7.50\n"
      "done: 2 steps, loss 0.5000, 10.0 samples/s, 25.0 % MFU, 40 tokens/s, 6.00G "
      "FLOP in 4.00 ms per step\n"
      "first step after 3.00 s, peak memory 7 B per rank, weights 00\n");
}

TEST(Reporters, TellWhatALanguageModelWrites) {
  const ContinuationEvent event{
      .step = 7, .prompt = "In the", .text = " \x01\"end\"\n\xff", .tokens = 9};
  const auto lines = [&](Reporter& reporter) {
    testing::internal::CaptureStdout();
    reporter.continuation(event);
    return testing::internal::GetCapturedStdout();
  };
  JsonReporter json(1, "", nullptr);
  EXPECT_EQ(lines(json), R"({"event":"sample","step":7,"prompt":"In the",)"
                         R"("text":" \u0001\"end\"\n\ufffd","tokens":9})"
                         "\n");
  TextReporter plain({.recipe = "r", .quiet = true});
  EXPECT_EQ(lines(plain), "sample after step 7:\nIn the ?\"end\"\n\xef\xbf\xbd\n");
}

}  // namespace
}  // namespace cohort::cli
