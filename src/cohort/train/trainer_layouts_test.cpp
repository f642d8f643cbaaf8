// SPDX-License-Identifier: Apache-2.0
// A run is saved in one layout and goes on in another: the state is the same, to the
// last bit, however tensors, stages and shards cut it.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "cohort/core/testing_folder.h"
#include "cohort/data/token_dataset.h"
#include "cohort/nn/language_models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int64_t kLayoutTokens = 4, kLayoutVocabulary = 11, kSavedAfter = 3;

std::unique_ptr<Dataset> few_tokens() {
  return make_token_dataset(synthetic_passages({.passages = 36,
                                                .length = kLayoutTokens + 1,
                                                .vocabulary = kLayoutVocabulary}),
                            {.length = kLayoutTokens});
}

TrainerOptions options_for(const Layout& layout, int64_t steps,
                           const std::string& folder) {
  TrainerOptions options;
  options.epochs = 10;
  options.max_steps = steps;
  options.batch = 12;
  options.slices = 6;
  options.layout = layout;
  options.update = {.name = "adamw"};
  options.rate.base = 0.02;
  options.step.exact = true;
  options.step.bucket_bytes = 2'000;
  options.started = std::chrono::system_clock::now();
  options.backup = {.dir = folder, .every_steps = kSavedAfter, .resume = true};
  return options;
}

// The tied embedding and the vocabulary, which two do not divide evenly, are cut too.
Chain chain_of(const Layout& layout, int part) {
  return make_gpt({.vocab = kLayoutVocabulary,
                   .context = kLayoutTokens,
                   .width = 8,
                   .depth = 2,
                   .heads = 2},
                  {.seed = 5, .tensor = {.rank = part, .size = layout.tp}});
}

// Goes on in a copy of what is saved there, if anything is; the hash of its weights.
std::string hash_after(const Layout& layout, int64_t steps, const std::string& saved) {
  const test::TempFolder own;
  if (std::filesystem::exists(saved))
    std::filesystem::copy(saved, own.path(), std::filesystem::copy_options::recursive);
  std::string hash;
  test::run_local_ranks(layout.world(), /*generation=*/0, [&](Communicator& comm) {
    at::set_num_threads(1);
    const auto data = few_tokens();
    const TrainerOptions options = options_for(layout, steps, own.path());
    const TrainerServices services{
        .chain_of_part = [&](int part) { return chain_of(layout, part); }};
    Chain chain = chain_of(layout, 0);
    const std::atomic<int> stop{0};
    test::Recorder recorder;
    Trainer trainer(chain, *data, nullptr, options, stop, services);
    trainer.enter(comm, comm.rank() == 0 ? &recorder : nullptr);
    const DoneEvent done = trainer.fit();
    EXPECT_EQ(done.steps, steps);
    if (comm.rank() == 0) hash = done.weights_hash;
  });
  if (!std::filesystem::exists(saved))
    std::filesystem::copy(own.path(), saved, std::filesystem::copy_options::recursive);
  return hash;
}

const Layout kSavedAs{.tp = 2, .pp = 2};

TEST(SavedLayout, IsLoadedByAnyOtherToTheLastBit) {
  test::run_in_child([] {
    const test::TempFolder folder;
    const std::string saved = folder / "saved";
    const std::string wanted = hash_after(kSavedAs, kSavedAfter, saved);
    for (const Layout& other :
         {Layout{.dp = 3}, Layout{}, Layout{.tp = 2}, Layout{.dp = 3, .shard = 3},
          Layout{.dp = 2, .tp = 2, .shard = 1}, Layout{.dp = 1, .pp = 3}, kSavedAs})
      EXPECT_EQ(hash_after(other, kSavedAfter, saved), wanted) << other.text();
  });
}

// Moments of the optimizer show in the next steps alone. Sums inside blocks depend on
// the number of parts, and on nothing else.
TEST(SavedLayout, GoesOnInAnyOtherAsItWould) {
  constexpr int64_t kOn = 2 * kSavedAfter;
  test::run_in_child([] {
    const test::TempFolder folder;
    const std::string saved = folder / "saved";
    hash_after(kSavedAs, kSavedAfter, saved);
    const std::string whole = hash_after({}, kOn, saved);
    for (const Layout& other : {Layout{.dp = 3}, Layout{.dp = 2, .pp = 2, .shard = 2}})
      EXPECT_EQ(hash_after(other, kOn, saved), whole) << other.text();
    const std::string parts = hash_after({.tp = 2}, kOn, saved);
    EXPECT_EQ(hash_after(kSavedAs, kOn, folder / "fresh"), parts);
    for (const Layout& other : {Layout{.dp = 2, .tp = 2}, kSavedAs})
      EXPECT_EQ(hash_after(other, kOn, saved), parts) << other.text();
  });
}

}  // namespace
}  // namespace cohort
