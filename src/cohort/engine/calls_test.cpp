// SPDX-License-Identifier: Apache-2.0
// Blocks that communicate inside: batch normalisation over all data-parallel ranks does
// what stock batch norm does with the whole batch, in every layout; and a block that
// calls something else than it declares is named.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/executor.h"
#include "cohort/nn/models.h"
#include "cohort/optim/sgd.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/gathered_weights.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using testing::HasSubstr;

constexpr int64_t kWhole = 12, kShort = 2;  // samples of a batch, and of the last one
constexpr int64_t kSide = 16;

Chain small_resnet(bool synced) {
  return make_resnet({.depths = {1}, .width = 4, .classes = 10},
                     {.seed = 5, .sync_batch_norm = synced});
}

Batch some_samples(int64_t step, int64_t begin, int64_t end) {
  const Tensor all = at::arange(kWhole * 3 * kSide * kSide, at::kFloat)
                         .mul(0.37)
                         .add(101.0 * static_cast<double>(step))
                         .sin()
                         .reshape({kWhole, 3, kSide, kSide});
  return Batch::of({{"input", all.slice(0, begin, end)},
                    {"target", at::arange(kWhole).remainder(10).slice(0, begin, end)}});
}

// Slice s of so many of the batch of a step; those of the last one may be empty.
Batch sync_slice(int64_t step, int slice, int slices) {
  const int64_t count = step == 2 ? kShort : kWhole;
  return some_samples(step, slice * count / slices, (slice + 1) * count / slices);
}

struct SyncWay {
  Layout layout;
  int slices = 1;
  BlockChoice recompute = false;
  bool elastic = false;
  at::ScalarType dtype = at::kFloat;
};

std::ostream& operator<<(std::ostream& out, const SyncWay& way) {
  const Layout& layout = way.layout;
  return out << "dp" << layout.dp << "_pp" << layout.pp << "_shard" << layout.shard
             << (way.elastic ? "_elastic" : "")
             << (layout.replicate > 1 ? "_hybrid" : "");
}

struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> tensors;
};

Schedule sync_schedule(const Chain& chain, const SyncWay& way, Communicator& comm) {
  Schedule schedule = generate(specs_of(chain), way.layout,
                               {.slices = way.slices,
                                .bucket_bytes = 6'000,
                                .elastic = way.elastic,
                                .recompute = way.recompute,
                                .precision = {.compute = way.dtype},
                                .shares_memory = shares_memory(comm)});
  check(schedule, {.elastic = way.elastic});
  return schedule;
}

// Three steps of SGD, the last with a short batch.
Trained train_synced(Chain& chain, const SyncWay& way, Communicator& comm) {
  const auto rule = make_sgd({.momentum = 0.9});
  Executor executor(chain, sync_schedule(chain, way, comm), *rule, comm, {});
  Trained trained;
  for (int64_t step = 0; step < 3; ++step)
    trained.losses.push_back(
        executor
            .run({.step = step,
                  .rate = 0.05,
                  .batch = [=](int s) { return sync_slice(step, s, way.slices); }})
            .loss);
  trained.tensors = test::gathered_weights(executor, comm);
  for (const auto& buffer : chain.buffers()) trained.tensors.push_back(buffer);
  return trained;
}

// One rank, the whole batch, stock batch norm.
Trained train_whole() {
  Trained trained;
  test::run_local_ranks(1, 0, [&](Communicator& comm) {
    Chain chain = small_resnet(false);
    trained = train_synced(chain, {}, comm);
  });
  return trained;
}

// Buffers are last, and every rank's.
void expect_close(const Trained& trained, const Trained& wanted) {
  for (size_t s = 0; s < wanted.losses.size(); ++s)
    EXPECT_NEAR(trained.losses[s], wanted.losses[s], 2e-4) << "step " << s;
  const size_t first = wanted.tensors.size() - trained.tensors.size();
  for (size_t i = first; i < wanted.tensors.size(); ++i) {
    const Tensor& mine = trained.tensors[i - first].tensor;
    EXPECT_TRUE(at::allclose(mine, wanted.tensors[i].tensor, 2e-3, 2e-4))
        << wanted.tensors[i].name << " by "
        << (mine - wanted.tensors[i].tensor).abs().max().item<double>();
  }
}

class SyncedWorlds : public testing::TestWithParam<test::World> {};

TEST_P(SyncedWorlds, TrainAsOneRankWithTheWholeBatch) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const Trained wanted = train_whole();
    for (const bool recompute : {false, true}) {
      Chain chain = small_resnet(true);
      const SyncWay way{
          .layout = {.dp = comm.size()}, .slices = comm.size(), .recompute = recompute};
      expect_close(train_synced(chain, way, comm), wanted);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, SyncedWorlds,
                         testing::ValuesIn(test::every_world({1, 2, 3})),
                         test::world_name);

class SyncedLayouts : public testing::TestWithParam<SyncWay> {};

TEST_P(SyncedLayouts, TrainAsOneRankWithTheWholeBatch) {
  test::run_in_child([] {
    const SyncWay way = GetParam();
    const Trained wanted = train_whole();
    test::run_local_ranks(way.layout.world(), 0, [&](Communicator& comm) {
      Chain chain = small_resnet(true);
      expect_close(train_synced(chain, way, comm), wanted);
    });
  });
}

std::vector<SyncWay> sync_ways() {
  std::vector<SyncWay> ways;
  for (const int shard : {0, 1, 2, 3})
    for (const bool elastic : {false, true}) {
      ways.push_back({{.dp = 3, .shard = shard}, 3, shard == 2, elastic});
      ways.push_back({{.dp = 2, .pp = 2, .shard = shard}, 2, shard == 3, elastic});
    }
  ways.push_back({{.dp = 4, .shard = 2, .replicate = 2}, 4, true});
  return ways;
}

std::string way_name(const testing::TestParamInfo<SyncWay>& info) {
  return testing::PrintToString(info.param);
}

INSTANTIATE_TEST_SUITE_P(EveryLayout, SyncedLayouts, testing::ValuesIn(sync_ways()),
                         way_name);

// Sums all ranks' inputs, as often as it declares or not.
class CallingBlock final : public Block {
 public:
  CallingBlock(std::vector<BlockCall> declared, int makes)
      : declared_(std::move(declared)), makes_(makes) {
    parameters_.push_back({"w", at::ones({4}).requires_grad_()});
  }
  const std::string& name() const override { return name_; }
  std::span<const NamedTensor> parameters() const override { return parameters_; }
  std::span<const NamedTensor> buffers() const override { return {}; }
  std::span<const std::string> fields() const override { return fields_; }
  std::vector<BlockCall> calls() const override { return declared_; }
  Values forward(const Values& inputs, Context& context) override {
    Tensor sum = inputs[0].detach().sum({0});
    for (int i = 0; i < makes_; ++i) context.calls->all_reduce(kDataAxes, sum);
    return {inputs[0] * parameters_[0].tensor + sum};
  }

 private:
  std::string name_ = "caller";
  std::vector<std::string> fields_ = {"input"};
  std::vector<NamedTensor> parameters_;
  std::vector<BlockCall> declared_;
  int makes_;
};

Chain calling_chain(std::vector<BlockCall> declared, int makes) {
  Chain chain;
  chain.blocks.push_back(std::make_unique<CallingBlock>(std::move(declared), makes));
  chain.loss.function = [](const Values& values, const Values&) {
    return WeightedLoss{.sum = values[0].sum(), .count = 1};
  };
  return chain;
}

Batch rows_of_four(int64_t rows) { return Batch::of({{"input", at::ones({rows, 4})}}); }

// What one step of it says.
std::string complaint(Chain chain, int ranks) {
  std::string said = "nothing";
  test::run_local_ranks(ranks, 0, [&](Communicator& comm) {
    const auto rule = make_sgd({});
    Executor executor(chain,
                      generate(specs_of(chain), {.dp = ranks}, {.slices = ranks}),
                      *rule, comm, {});
    try {
      executor.run({.rate = 0.1, .batch = [](int) { return rows_of_four(2); }});
    } catch (const BugError& error) {
      said = error.what();
    }
  });
  return said;
}

TEST(CallsOfBlocks, ThatDifferFromTheDeclaredOnesAreNamed) {
  test::run_in_child([] {
    const BlockCall right{.numel = 4};
    const BlockCall wide{.numel = 5};
    EXPECT_EQ(complaint(calling_chain({right}, 1), 1), "nothing");
    EXPECT_EQ(
        complaint(calling_chain({}, 1), 1),
        "[engine] block caller: call 0 inside its forward is AllReduce of 4 Float "
        "over replicate,cut; declared: none");
    EXPECT_EQ(
        complaint(calling_chain({wide}, 1), 1),
        "[engine] block caller: call 0 inside its forward is AllReduce of 4 Float "
        "over replicate,cut; declared: AllReduce of 5 Float over replicate,cut");
    EXPECT_EQ(complaint(calling_chain({right, right}, 1), 1),
              "[engine] block caller: call 1 inside its forward is nothing more; "
              "declared: AllReduce of 4 Float over replicate,cut");
    const BlockCall back{.when = BlockCall::When::kBackward, .numel = 4};
    EXPECT_THAT(complaint(calling_chain({right, back}, 1), 1),
                HasSubstr("call 0 inside its backward is nothing more"));
  });
}

TEST(CallsOfBlocks, AreCheckedByADryRunBeforeAnyStep) {
  test::run_in_child([] {
    const auto dry_run = [](const Chain& chain) {
      try {
        measure_blocks(chain, rows_of_four, 2);
      } catch (const BugError& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    EXPECT_EQ(dry_run(calling_chain({{.numel = 4}}, 1)), "nothing");
    EXPECT_THAT(dry_run(calling_chain({}, 1)), HasSubstr("declared: none"));
    EXPECT_THAT(dry_run(calling_chain({{.numel = 4}}, 0)), HasSubstr("nothing more"));
  });
}

TEST(CallsOfBlocks, AreRefusedWhereADeviceComputes) {
  test::run_in_child([] {
    test::run_local_ranks(2, 0, [](Communicator& comm) {
      Chain chain = small_resnet(true);
      const auto rule = make_sgd({});
      const Schedule schedule = generate(specs_of(chain), {.dp = 2},
                                         {.slices = 2, .memory = MemoryIn::kDevice});
      std::string refusal = "none";
      try {
        Executor(chain, schedule, *rule, comm, {.compute_on = ComputeOn::kStaged});
      } catch (const ConfigError& error) {
        refusal = error.what();
      }
      EXPECT_EQ(
          refusal,
          "[engine] block stem calls AllReduce in group dp inside, which a step on "
          "a GPU cannot; legal: one rank, a run on processors, or a model without "
          "such calls");
    });
  });
}

// Every call of every rank, in forward and in backward: the fault comes out as it is.
TEST(CallsOfBlocks, AreFaultPoints) {
  test::run_in_child([] {
    std::map<int, int64_t> calls;  // number in one step, by rank
    std::mutex mutex;
    const auto run = [&](FaultPlan& faults) {
      std::atomic<int> struck = 0, lost = 0;
      test::run_local_ranks(2, 0, [&](Communicator& comm) {
        Chain chain = small_resnet(true);
        const SyncWay way{.layout = {.dp = 2}, .slices = 2, .recompute = true};
        const auto rule = make_sgd({});
        Executor executor(chain, sync_schedule(chain, way, comm), *rule, comm, {},
                          {.faults = &faults});
        try {
          executor.run(
              {.rate = 0.1, .batch = [](int s) { return sync_slice(0, s, 2); }});
        } catch (const InjectedFault&) {
          ++struck;
          comm.abort("the test says so");
        } catch (const CommError&) {
          ++lost;
        }
      });
      return std::pair(struck.load(), lost.load());
    };
    FaultPlan watched;
    watched.observe([&](std::string_view name, int rank, int64_t index) {
      const std::lock_guard lock(mutex);
      if (name != "engine.call") return;
      EXPECT_EQ(index, calls[rank]++);
    });
    EXPECT_EQ(run(watched), std::pair(0, 0));
    // Five norms: forward, forward again, backward.
    EXPECT_EQ(calls, (std::map<int, int64_t>{{0, 15}, {1, 15}}));
    for (int64_t index = 0; index < calls[0]; ++index) {
      FaultPlan faults;
      faults.arm({.name = "engine.call", .rank = 1, .index = index});
      EXPECT_EQ(run(faults), std::pair(1, 1)) << "call " << index;
    }
  });
}

}  // namespace
}  // namespace cohort
