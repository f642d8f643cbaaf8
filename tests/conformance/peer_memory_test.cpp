// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/peer_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/communicator.h"
#include "cohort/core/error.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::input;
using test::reduced;

class PeerMemoryTest : public testing::TestWithParam<test::World> {};
// With pages of their own: not local, where all memory is shared.
class PagesTest : public testing::TestWithParam<test::World> {};
// With a peer.
class JointWorkTest : public testing::TestWithParam<test::World> {};

PeerMemory& peer_memory(Communicator& comm) {
  auto* memory = dynamic_cast<PeerMemory*>(&comm);
  if (!memory) throw std::runtime_error("no PeerMemory");
  return *memory;
}

TEST(ShardRangeTest, ShardsCoverATensorOnceAndAreCutAtMultiplesOf1024) {
  for (const int64_t numel : {0, 1, 1024, 5000, 1'000'001}) {
    for (const int size : {1, 2, 3, 7}) {
      int64_t at = 0;
      for (int r = 0; r < size; ++r) {
        const auto shard = shard_range(numel, r, size);
        EXPECT_EQ(shard.begin, at);
        EXPECT_TRUE(shard.begin % 1024 == 0 || shard.begin == numel);
        at = shard.end;
      }
      EXPECT_EQ(at, numel);
    }
  }
}

TEST_P(PeerMemoryTest, EveryRankSeesTheMemoryOfAll) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : {3, 5000}) {
      auto mine = comm.allocate({numel}, at::kFloat);
      mine.copy_(input(comm.rank(), numel, at::kFloat));
      auto views = peer_memory(comm).map_peers(mine);
      ASSERT_EQ(static_cast<int>(views.size()), comm.size());
      comm.barrier().wait();
      for (int r = 0; r < comm.size(); ++r) {
        EXPECT_TRUE(at::equal(views[r], input(r, numel, at::kFloat)));
      }
      comm.barrier().wait();
      const int next = (comm.rank() + 1) % comm.size();
      views[next].fill_(comm.rank());  // and writes it
      comm.barrier().wait();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      EXPECT_TRUE(at::equal(mine, at::full({numel}, previous, at::kFloat)));
      comm.barrier().wait();
    }
  });
}

TEST_P(JointWorkTest, WorkOfAMeetingWaitsWhileMeetingsAreHeld) {
  test::run_ranks(GetParam(), [](Communicator& world) {
    const auto part = world.split(0);
    bool worked = false;
    auto joint = peer_memory(world).work_jointly(1, [&] { worked = true; });
    {
      const auto hold = peer_memory(*part).hold_joint_work();
      for (const int64_t numel : {3, 100'000}) {
        Tensor sum = at::ones({numel});
        part->all_reduce(sum, ReduceOp::kSum).wait();  // moves siblings' bytes
        EXPECT_TRUE(at::equal(sum, at::full({numel}, part->size())));
      }
      EXPECT_FALSE(worked);
    }
    joint.wait();
    EXPECT_TRUE(worked);
  });
}

TEST_P(PeerMemoryTest, OnlyProcessesCanHaveMemoryTwice) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    EXPECT_EQ(peer_memory(comm).join_alignment() > 0, comm.backend() == "shm");
  });
}

TEST_P(PagesTest, JoinedPartsAreTheMemoryOfAllInOrder) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int64_t unit = peer_memory(comm).join_alignment();
    ASSERT_GT(unit, 0);
    for (const int64_t units : {1, 5}) {
      const int64_t numel = units * unit / 4;
      auto gap = comm.allocate({comm.rank() + 1}, at::kFloat);  // none at one offset
      auto part = comm.allocate({numel}, at::kFloat);
      part.copy_(input(comm.rank(), numel, at::kFloat));
      auto joined = peer_memory(comm).join(part);
      ASSERT_EQ(joined.numel(), comm.size() * numel);
      comm.barrier().wait();
      for (int r = 0; r < comm.size(); ++r)
        EXPECT_TRUE(
            at::equal(joined.narrow(0, r * numel, numel), input(r, numel, at::kFloat)));
      comm.barrier().wait();
      part.fill_(7 + comm.rank());  // seen without another word
      comm.barrier().wait();
      for (int r = 0; r < comm.size(); ++r)
        EXPECT_EQ(joined[(r + 1) * numel - 1].item<float>(), 7 + r);
      comm.barrier().wait();
    }
  });
}

TEST_P(PagesTest, PartsThatDoNotEndAtAPageAreNotJoined) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    auto part = comm.allocate({1000}, at::kFloat);
    EXPECT_THROW(peer_memory(comm).join(part), ConfigError);
  });
}

TEST_P(PeerMemoryTest, EachRankWorksOnItsShareOfAllRanksMemory) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : {0, 1, 1025, 300'001}) {
      auto gradient = comm.allocate({numel}, at::kFloat);
      auto weights = comm.allocate({numel}, at::kFloat);
      const auto inputs = peer_memory(comm).map_peers(gradient);
      const auto copies = peer_memory(comm).map_peers(weights);
      const auto shard = shard_range(numel, comm.rank(), comm.size());
      gradient.copy_(input(comm.rank(), numel, at::kFloat));  // before it arrives
      int calls = 0;
      auto work = peer_memory(comm).work_jointly(numel, [&] {
        ++calls;
        Tensor sum = at::zeros({shard.end - shard.begin});
        for (const auto& in : inputs) sum += in.slice(0, shard.begin, shard.end);
        for (const auto& copy : copies)
          copy.slice(0, shard.begin, shard.end).copy_(sum);
      });
      work.wait();
      EXPECT_EQ(calls, 1);
      EXPECT_TRUE(
          at::equal(weights, reduced(comm.size(), numel, at::kFloat, ReduceOp::kSum)));
      comm.barrier().wait();
    }
  });
}

TEST_P(JointWorkTest, RanksThatMeetForSomethingElseAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const auto message = test::comm_error([&] {
      peer_memory(comm).work_jointly(comm.rank() == 0 ? 7 : 8, [] {}).wait();
    });
    EXPECT_NE(message.find("joint work"), std::string::npos) << message;
  });
}

TEST_P(PeerMemoryTest, WorkThatThrowsBreaksTheGroup) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const auto message = test::comm_error([&] {
      const int last = comm.size() - 1;
      peer_memory(comm)
          .work_jointly(1,
                        [&] {
                          if (comm.rank() == last)
                            throw std::runtime_error("no update");
                        })
          .wait();
      comm.barrier().wait();
    });
    EXPECT_NE(message.find("no update"), std::string::npos) << message;
  });
}

TEST_P(PagesTest, OrdinaryMemoryIsRefusedOnEveryRank) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const auto message =
        test::comm_error([&] { peer_memory(comm).map_peers(at::zeros({100})); });
    EXPECT_NE(message.find("allocate()"), std::string::npos) << message;
  });
}

TEST_P(PagesTest, OrdinaryMemoryOfOneRankIsRefusedOnAllAndTheRankNamed) {
  for (int odd = 0; odd < GetParam().size; ++odd)
    test::run_ranks(GetParam(), [&](Communicator& comm) {
      const Tensor mine =
          comm.rank() == odd ? at::zeros({100}) : comm.allocate({100}, at::kFloat);
      const auto message = test::comm_error([&] { peer_memory(comm).map_peers(mine); });
      EXPECT_NE(message.find(text("the tensor of rank ", odd)), std::string::npos)
          << message;
    });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, PeerMemoryTest,
                         testing::ValuesIn(test::every_checked_world({1, 2, 3, 5})),
                         test::world_name);
INSTANTIATE_TEST_SUITE_P(
    EveryWorld, PagesTest,
    testing::ValuesIn(test::but("local", test::every_checked_world({1, 2, 3, 5}))),
    test::world_name);
INSTANTIATE_TEST_SUITE_P(EveryWorld, JointWorkTest,
                         testing::ValuesIn(test::every_checked_world({2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
