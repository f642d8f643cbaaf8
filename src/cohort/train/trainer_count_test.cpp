// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "cohort/core/testing_error.h"
#include "cohort/data/synthetic.h"
#include "cohort/engine/block_count.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

Chain counted_chain() { return make_mlp({.width = 64, .depth = 12}, {.seed = 2}); }

// A data set that nobody may look at before the run begins.
class Untouched final : public Dataset {
 public:
  int64_t size() const override { return 3000; }
  std::span<const std::string> fields() const override { return fields_; }
  Batch gather(std::span<const int64_t>, std::span<const std::string>) const override {
    throw DataError("looked at");
  }
  std::string describe() const override { return "untouched"; }

 private:
  const std::vector<std::string> fields_{"input", "target"};
};

std::vector<BlockMeasure> counted_bytes() {
  const ModelsWithoutMemory guard;
  const auto data = make_synthetic({.size = 8, .shape = {1, 28, 28}});
  return needs_of(count_blocks(counted_chain(), *data).value());
}

std::string refusal_of(const Dataset& data, const TrainerOptions& options,
                       Communicator& comm) {
  Chain chain = counted_chain();
  const std::atomic<int> stop{0};
  return test::message_of<Error>(
      [&] { Trainer(chain, data, nullptr, options, stop).enter(comm, nullptr); });
}

TEST(TrainerCount, ACountedChainIsNotRunBeforeTheFirstStep) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    TrainerOptions options{.batch = 8, .layout = {.dp = 1}};
    EXPECT_EQ(refusal_of(Untouched(), options, comm), "looked at");
    options.counted = counted_bytes();
    EXPECT_EQ(refusal_of(Untouched(), options, comm), "no error");
  });
}

// Up to the note that it is an estimate, both refuse the same with the same numbers.
TEST(TrainerCount, ARefusalSaysThatActivationsAreCounted) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    TrainerOptions options{.batch = 3000, .layout = {.dp = 1}};
    options.memory_limit = 3'000'000;
    const auto data = make_synthetic({.size = 3000, .shape = {1, 28, 28}});
    const std::string measured = refusal_of(*data, options, comm);
    options.counted = counted_bytes();
    std::string counted = refusal_of(*data, options, comm);
    const std::string note = " (counted, an estimate)";
    EXPECT_THAT(measured, testing::Not(testing::HasSubstr(note)));
    ASSERT_THAT(counted, testing::HasSubstr("of activations" + note));
    counted.erase(counted.find(note), note.size());
    EXPECT_EQ(counted, measured);
  });
}

}  // namespace
}  // namespace cohort
