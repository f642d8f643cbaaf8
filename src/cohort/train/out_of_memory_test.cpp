// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/out_of_memory.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <regex>

#include "cohort/core/testing_error.h"
#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "cohort/step/generator.h"
#include "cohort/train/step_plan.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using testing::HasSubstr;

// A block that runs into the end of a GPU's memory when it is told to.
class Greedy final : public Block {
 public:
  explicit Greedy(const bool& fails) : fails_(fails) {}
  const std::string& name() const override { return name_; }
  std::span<const NamedTensor> parameters() const override { return {}; }
  std::span<const NamedTensor> buffers() const override { return {}; }
  std::span<const std::string> fields() const override { return {}; }
  Values forward(const Values& inputs, Context&) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !fails_,
                     "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
                     "total capacity of 139.81 GiB of which 1.00 MiB is free.\nmore");
    return inputs;
  }

 private:
  const bool& fails_;
  const std::string name_ = "greedy";
};

struct GreedyRun {
  bool fails = false;
  Chain chain = make_mlp({.width = 64, .depth = 12}, {.seed = 2});
  std::unique_ptr<Dataset> data = make_synthetic({.size = 600, .shape = {1, 28, 28}});
  TrainerOptions options{.batch = 600, .slices = 2, .layout = {.dp = 1}};
  const std::atomic<int> stop{0};

  explicit GreedyRun(int ranks) {
    options.layout.dp = ranks;
    chain.blocks.insert(chain.blocks.begin() + 1, std::make_unique<Greedy>(fails));
  }

  std::string refusal(Communicator& comm) {
    Trainer trainer(chain, *data, nullptr, options, stop);
    trainer.enter(comm, nullptr);
    fails = true;
    return test::message_of<ConfigError>([&] { trainer.fit(); });
  }
};

TEST(OutOfMemory, IsOneLineWithWhatThePlanHasAndWhatNeedsLess) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    const std::string line = GreedyRun(1).refusal(comm);
    EXPECT_THAT(line, HasSubstr("[train] out of memory, tried to allocate 20.00 MiB on "
                                "rank 0; its plan has there: activations "));
    EXPECT_EQ(line.find('\n'), std::string::npos);
    std::smatch found;
    const std::regex form(
        "parameters ([0-9.]+) MiB.*; together ([0-9.]+) MiB; "
        "would need less by the plan: step.recompute=all \\(([0-9.]+) MiB\\), or ");
    ASSERT_TRUE(std::regex_search(line, found, form)) << line;
    EXPECT_LT(std::stod(found[1]), std::stod(found[2]));
    EXPECT_LE(std::stod(found[3]), 0.75 * std::stod(found[2]));
  });
}

TEST(OutOfMemory, OfOneRankIsThatRanks) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    EXPECT_THAT(GreedyRun(2).refusal(comm),
                HasSubstr(text("on rank ", comm.rank(), ";")));
  });
}

// What is on the host is no cause of it, where blocks compute on a device.
TEST(OutOfMemory, CountsWhatIsWhereBlocksCompute) {
  const Chain chain = make_mlp({.width = 64, .depth = 2}, {});
  const auto sum_in = [&](MemoryIn memory, bool offload = false) {
    const Schedule schedule =
        generate(specs_of(chain), {},
                 {.offload = offload, .memory = memory, .optimizer_states = 2});
    return largest_in_plan(schedule, schedule.role_of(0));
  };
  EXPECT_THAT(sum_in(MemoryIn::kDevice), HasSubstr("optimizer state"));
  EXPECT_THAT(sum_in(MemoryIn::kHost), HasSubstr("optimizer state"));
  EXPECT_THAT(sum_in(MemoryIn::kDevice, /*offload=*/true),
              testing::Not(HasSubstr("optimizer state")));
}

// The optimizer has two of four times the weights.
TEST(OutOfMemory, OfADeviceIsLessWithStateOnTheHost) {
  const Chain chain = make_mlp({.width = 512, .depth = 2}, {});
  WorldOptions options{{.batch = 1, .slices = 1, .layout = {.dp = 1}}};
  options.step.recompute = true;
  options.execute.compute_on = ComputeOn::kStaged;
  const auto rule = make_update_rule({.name = "adamw"});
  const std::vector<BlockMeasure> measures(chain.blocks.size());
  const auto advice = [&] {
    return std::string(out_of_memory("", chain, measures, options, *rule, 0).what());
  };
  EXPECT_THAT(advice(), HasSubstr("by the plan: step.offload=optimizer ("));
  options.step.offload = true;
  EXPECT_THAT(advice(), testing::Not(HasSubstr("step.offload=optimizer")));
}

TEST(OutOfMemory, WhereNothingNeedsLessSaysSo) {
  const Chain chain = make_mlp({.width = 8, .depth = 1}, {});
  WorldOptions options{{.batch = 1, .slices = 1, .layout = {.dp = 1}}};
  options.step.recompute = true;
  const auto rule = make_update_rule({});
  const std::vector<BlockMeasure> measures(chain.blocks.size());
  const ConfigError error = out_of_memory("", chain, measures, options, *rule, 0);
  EXPECT_THAT(std::string(error.what()),
              HasSubstr("would need less by the plan: a smaller model"));
}

}  // namespace
}  // namespace cohort
