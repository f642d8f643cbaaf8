// SPDX-License-Identifier: Apache-2.0
// A model that is being trained continues a text: the same at every layout.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/token_dataset.h"
#include "cohort/data/token_passages.h"
#include "cohort/nn/language_models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int64_t kReads = 16;  // tokens, at once

Chain speaking_chain(const std::string& model, const TensorPart& part) {
  const LayerOptions layers{.seed = 5, .tensor = part};
  const int64_t vocab = byte_vocabulary().size;
  if (model == "llama")
    return make_llama({.vocab = vocab,
                       .context = kReads,
                       .width = 16,
                       .depth = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .hidden = 32},
                      layers);
  return make_gpt({.vocab = vocab,
                   .context = kReads,
                   .width = 16,
                   .depth = 2,
                   .heads = 2,
                   .segments = model == "gpt with segments"},
                  layers);
}

std::unique_ptr<Dataset> passages(int64_t count, uint64_t seed, bool pack) {
  const TokenDatasetOptions samples{.length = kReads, .pack = pack, .end_of_text = 256};
  return make_token_dataset(synthetic_passages({.passages = count,
                                                .length = passage_length(samples),
                                                .vocabulary = 256,
                                                .seed = seed}),
                            samples);
}

struct SpeechCase {
  std::string model = "gpt";
  Layout layout = {};
  std::string prompt = "In the beginning";
  ComputeOn compute_on = ComputeOn::kHost;
};

// What one run says, of two epochs with a validation each. On rank 0.
std::vector<ContinuationEvent> said(Communicator& comm, const SpeechCase& given) {
  const std::string& model = given.model;
  const Layout& layout = given.layout;
  const bool pack = model == "gpt with segments";
  const auto train = passages(16, 1, pack), valid = passages(4, 2, pack);
  const auto bytes = make_byte_tokenizer();
  TrainerOptions options{.epochs = 2, .batch = 8, .slices = 4, .layout = layout};
  options.rate.base = 0.05;
  options.step.exact = true;
  options.execute.compute_on = given.compute_on;
  options.continuation =
      ContinuationOptions{.prompt = given.prompt, .tokens = 24, .choice = {.seed = 3}};
  options.started = std::chrono::system_clock::now();
  const TrainerServices services{
      .tokenizer = bytes.get(), .chain_of_part = [&](int part) {
        return speaking_chain(model, {.rank = part, .size = layout.tp});
      }};
  Chain chain = services.chain_of_part(0);
  test::Recorder recorder;
  const std::atomic<int> stop{0};
  Trainer trainer(chain, *train, valid.get(), options, stop, services);
  trainer.enter(comm, comm.rank() == 0 ? &recorder : nullptr);
  trainer.fit();
  return recorder.continuations;
}

std::vector<ContinuationEvent> said_by_ranks(const SpeechCase& given) {
  std::vector<ContinuationEvent> all;
  test::run_local_ranks(given.layout.world(), /*generation=*/0,
                        [&](Communicator& comm) {
                          auto mine = said(comm, given);
                          if (comm.rank() == 0) all = std::move(mine);
                        });
  return all;
}

void expect_said(const SpeechCase& given,
                 const std::vector<ContinuationEvent>& expected) {
  const auto all = said_by_ranks(given);
  const std::string where = given.model + " " + given.layout.text();
  ASSERT_EQ(all.size(), expected.size()) << where;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].step, expected[i].step) << where;
    EXPECT_EQ(all[i].text, expected[i].text) << where;
  }
}

TEST(Speech, ComesAfterEachValidationAndAtTheEnd) {
  test::run_in_child([] {
    at::set_num_threads(1);
    const auto all = said_by_ranks({});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].step, 2);
    EXPECT_EQ(all[1].step, 4);
    for (const auto& one : all) {
      EXPECT_EQ(one.prompt, "In the beginning");
      EXPECT_EQ(one.tokens, 24);
      EXPECT_FALSE(one.text.empty());
    }
    EXPECT_NE(all[0].text, all[1].text);
    const auto unasked = said_by_ranks({.prompt = ""});
    EXPECT_EQ(unasked.at(1).prompt, "");
    EXPECT_NE(unasked.at(1).text, all[1].text);
  });
}

TEST(Speech, IsTheSameAtEveryLayout) {
  test::run_in_child([] {
    at::set_num_threads(1);
    for (const char* model : {"gpt", "gpt with segments", "llama"}) {
      const auto expected = said_by_ranks({.model = model});
      for (const Layout& layout :
           {Layout{.dp = 2}, Layout{.dp = 2, .shard = 3}, Layout{.pp = 2},
            Layout{.tp = 2}, Layout{.dp = 2, .pp = 2}, Layout{.tp = 2, .pp = 2}})
        expect_said({.model = model, .layout = layout}, expected);
    }
  });
}

// The way of GPUs, on the host.
TEST(Speech, IsTheSameWhereADeviceHasTheState) {
  test::run_in_child([] {
    at::set_num_threads(1);
    expect_said({.layout = {.dp = 2}, .compute_on = ComputeOn::kStaged},
                said_by_ranks({}));
  });
}

}  // namespace
}  // namespace cohort
