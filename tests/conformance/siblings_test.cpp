// SPDX-License-Identifier: Apache-2.0
// Groups of one world, used side by side: a wait in one moves the others.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "cohort/comm/peer_memory.h"
#include "cohort/communicator.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::in_memory;
using test::input;
using test::reduced;
using test::Where;

constexpr int64_t kManyRounds = 300'001;  // staged: needs several turns of every rank

class SiblingsTest : public testing::TestWithParam<test::World> {};

// Even ranks wait for the part first, odd ranks for the world.
TEST_P(SiblingsTest, GroupsMayBeWaitedForInAnyOrder) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    for (const auto where : test::kEverywhere) {
      auto x = in_memory(world, input(world.rank(), kManyRounds, at::kFloat), where);
      auto whole = world.all_reduce(x, ReduceOp::kSum);
      if (world.rank() % 2 == 0) {
        part->barrier().wait();
        whole.wait();
      } else {
        whole.wait();
        part->barrier().wait();
      }
      EXPECT_TRUE(
          at::equal(x, reduced(world.size(), kManyRounds, at::kFloat, ReduceOp::kSum)));
    }
  });
}

TEST_P(SiblingsTest, PollingOneGroupMovesTheOthers) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    auto x = input(world.rank(), kManyRounds, at::kFloat);
    auto whole = world.all_reduce(x, ReduceOp::kSum);
    if (world.rank() % 2 == 0) {
      auto barrier = part->barrier();
      while (!barrier.poll()) {
      }
      barrier.wait();
      whole.wait();
    } else {
      while (!whole.poll()) {
      }
      whole.wait();
      part->barrier().wait();
    }
    EXPECT_TRUE(
        at::equal(x, reduced(world.size(), kManyRounds, at::kFloat, ReduceOp::kSum)));
  });
}

// Every rank starts at another group of the cycle.
TEST_P(SiblingsTest, GroupsInACycleDoNotBlockOneAnother) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    constexpr int kGroups = 3;
    const std::unique_ptr<Communicator> groups[] = {world.split(0), world.split(1),
                                                    world.split(2)};
    for (const auto where : test::kEverywhere) {
      std::vector<Tensor> tensors;
      std::vector<Work> works;
      for (int i = 0; i < kGroups; ++i) {
        tensors.push_back(
            in_memory(world, input(world.rank(), kManyRounds + i, at::kFloat), where));
        works.push_back(groups[i]->all_reduce(tensors[i], ReduceOp::kSum));
      }
      for (int i = 0; i < kGroups; ++i) works[(world.rank() + i) % kGroups].wait();
      for (int i = 0; i < kGroups; ++i)
        EXPECT_TRUE(at::equal(tensors[i], reduced(world.size(), kManyRounds + i,
                                                  at::kFloat, ReduceOp::kSum)));
    }
  });
}

// A part of a part, and transfers in it, while the world reduces.
TEST_P(SiblingsTest, PartsOfPartsAndTransfersMoveToo) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    const auto inner = part->split(0);
    const int n = world.size(), next = (world.rank() + 1) % n,
              previous = (world.rank() + n - 1) % n;
    for (const auto where : test::kEverywhere) {
      auto x = in_memory(world, input(world.rank(), kManyRounds, at::kFloat), where);
      const auto mine =
          in_memory(world, input(world.rank(), kManyRounds, at::kInt), where);
      auto theirs = at::empty({kManyRounds}, at::kInt);
      const Transfer send[] = {{next, mine}}, receive[] = {{previous, theirs}};
      std::vector<Work> works;
      works.push_back(world.all_reduce(x, ReduceOp::kSum));
      works.push_back(part->barrier());
      works.push_back(inner->exchange(send, receive));
      for (size_t i = 0; i < works.size(); ++i)
        works[(i + static_cast<size_t>(world.rank())) % works.size()].wait();
      EXPECT_TRUE(at::equal(x, reduced(n, kManyRounds, at::kFloat, ReduceOp::kSum)));
      EXPECT_TRUE(at::equal(theirs, input(previous, kManyRounds, at::kInt)));
    }
  });
}

// The world, all of it once more, its halves, and a split of a split.
std::vector<std::unique_ptr<Communicator>> split_often(Communicator& world) {
  std::vector<std::unique_ptr<Communicator>> groups;
  groups.push_back(world.split(0));
  groups.push_back(world.split(world.rank() % 2));
  groups.push_back(groups[0]->split(world.rank() < 2 ? 0 : 1));
  groups.push_back(groups[2]->split(5));
  return groups;
}

// One call of a group, which every member derives alike from `seed`.
struct SiblingCall {
  Work work;
  Tensor result, expected;
};

SiblingCall call_sibling(Communicator& group, Communicator& world, std::mt19937& seed) {
  const int n = group.size();
  const int64_t numel = std::vector<int64_t>{1, 900, 5000, 40'001}[seed() % 4];
  const auto where = test::kEverywhere[seed() % 3];
  const auto values = input(group.rank(), numel, at::kFloat);
  SiblingCall call;
  switch (seed() % 4) {
    case 0:
      call.result = in_memory(world, values, where);
      call.expected = reduced(n, numel, at::kFloat, ReduceOp::kSum);
      call.work = group.all_reduce(call.result, ReduceOp::kSum);
      break;
    case 1: {
      const int root = static_cast<int>(seed() % static_cast<unsigned>(n));
      call.result = in_memory(world, values, where);
      call.expected = input(root, numel, at::kFloat);
      call.work = group.broadcast(call.result, root);
      break;
    }
    case 2: {
      std::vector<Tensor> all;
      for (int r = 0; r < n; ++r) all.push_back(input(r, numel, at::kFloat));
      call.result = at::empty({n * numel});
      call.expected = at::cat(all);
      call.work = group.all_gather(call.result, in_memory(world, values, where));
      break;
    }
    default: {
      const int next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
      call.result = in_memory(world, at::zeros({numel}), where);
      call.expected = input(previous, numel, at::kFloat);
      const Transfer send[] = {{next, values}}, receive[] = {{previous, call.result}};
      call.work = group.exchange(send, receive);
    }
  }
  return call;
}

// Members of a group make its calls in one order; between groups, and when they wait,
// every rank has an order of its own.
TEST_P(SiblingsTest, AnyOrderOfGroupsIsRight) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto groups = split_often(world);
    for (unsigned round = 0; round < 4; ++round) {
      constexpr int kCalls = 6;  // in each group
      std::mt19937 own(1000 * round + static_cast<unsigned>(world.rank()));
      std::vector<size_t> turns;
      for (size_t g = 0; g < groups.size(); ++g) turns.insert(turns.end(), kCalls, g);
      std::shuffle(turns.begin(), turns.end(), own);
      std::vector<std::mt19937> seeds;
      for (size_t g = 0; g < groups.size(); ++g)
        seeds.emplace_back(100 * round + static_cast<unsigned>(g));
      std::vector<SiblingCall> calls;
      for (const size_t g : turns)
        calls.push_back(call_sibling(*groups[g], world, seeds[g]));
      std::shuffle(calls.begin(), calls.end(), own);
      for (auto& call : calls) {
        for (unsigned polls = own() % 3; polls > 0; --polls) (void)call.work.poll();
        call.work.wait();
        EXPECT_TRUE(at::equal(call.result, call.expected)) << "round " << round;
      }
    }
  });
}

std::vector<Tensor> inputs_of_many_calls(int rank) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i)
    tensors.push_back(input(rank, i % 3 == 0 ? 60'001 : 100, at::kFloat));
  return tensors;
}

void reduce_each(Communicator& group, std::vector<Tensor>& tensors) {
  for (auto& x : tensors) group.all_reduce(x, ReduceOp::kSum).wait();
}

void expect_reduced(int size, const std::vector<Tensor>& tensors) {
  for (const auto& x : tensors)
    EXPECT_TRUE(at::equal(x, reduced(size, x.numel(), at::kFloat, ReduceOp::kSum)));
}

// As one that writes checkpoints does, beside a rank that trains. The rank itself makes
// and frees all tensors: memory that LibTorch hands from a thread that has ended to
// another looks like a race to the thread sanitizer.
TEST_P(SiblingsTest, AnotherThreadMayUseAnotherGroup) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto behind = world.split(0), beside = world.split(0);
    for (int turn = 0; turn < 3; ++turn) {
      auto x = input(world.rank(), kManyRounds, at::kFloat);
      auto written = inputs_of_many_calls(world.rank()), trained = written;
      for (auto& tensor : trained) tensor = tensor.clone();
      auto whole = world.all_reduce(x, ReduceOp::kSum);
      std::jthread writer([&] { reduce_each(*behind, written); });
      reduce_each(*beside, trained);
      whole.wait();
      writer.join();
      expect_reduced(world.size(), written);
      expect_reduced(world.size(), trained);
      expect_reduced(world.size(), {x});
      auto again = inputs_of_many_calls(world.rank());  // this thread's again
      reduce_each(*behind, again);
      expect_reduced(world.size(), again);
    }
  });
}

TEST_P(SiblingsTest, AWorkMayBeFinishedByAnotherThread) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    for (int turn = 0; turn < 10; ++turn) {
      auto x = input(world.rank(), 200'001, at::kFloat);
      auto work = part->all_reduce(x, ReduceOp::kSum);
      std::jthread other([&] { work.wait(); });
      world.barrier().wait();  // may still be moving the part when the other comes
      other.join();
      EXPECT_TRUE(
          at::equal(x, reduced(world.size(), 200'001, at::kFloat, ReduceOp::kSum)));
    }
  });
}

TEST_P(SiblingsTest, ABrokenPartLeavesTheOthersWhole) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0), other = world.split(0);
    auto x = at::ones({kManyRounds});
    auto pending = part->all_reduce(x, ReduceOp::kSum);
    world.barrier().wait();
    if (world.rank() == 0) part->abort("no more of this");
    for (int i = 0; i < 20; ++i) {
      auto y = input(world.rank(), 60'001, at::kFloat);
      other->all_reduce(y, ReduceOp::kSum).wait();
      EXPECT_TRUE(
          at::equal(y, reduced(world.size(), 60'001, at::kFloat, ReduceOp::kSum)));
    }
    EXPECT_THAT(test::comm_error([&] {
                  pending.wait();  // may have been done before
                  part->barrier().wait();
                }),
                testing::HasSubstr("no more of this"));
    world.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, SiblingsTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);

// Ranks that see one another's memory.
class SiblingJointWorkTest : public testing::TestWithParam<test::World> {};

TEST_P(SiblingJointWorkTest, MeetingsMoveToo) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    int calls = 0;
    auto x = input(world.rank(), kManyRounds, at::kFloat);
    auto whole = world.all_reduce(x, ReduceOp::kSum);
    auto joint = dynamic_cast<PeerMemory&>(*part).work_jointly(1, [&] { ++calls; });
    if (world.rank() % 2 == 0) {
      joint.wait();
      whole.wait();
    } else {
      whole.wait();
      joint.wait();
    }
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(
        at::equal(x, reduced(world.size(), kManyRounds, at::kFloat, ReduceOp::kSum)));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, SiblingJointWorkTest,
                         testing::ValuesIn(test::every_checked_world({2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
