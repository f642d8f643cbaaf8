// SPDX-License-Identifier: Apache-2.0
// A group that breaks while a peer works in this rank's memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "cohort/comm/peer_memory.h"
#include "cohort/communicator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::comm_error;
using testing::HasSubstr;

PeerMemory& memory_of(Communicator& comm) { return dynamic_cast<PeerMemory&>(comm); }

// Ranks that touch one another's memory.
class LatePeerTest : public testing::TestWithParam<test::World> {};

// Rank 0 ends the group while rank 1 writes: it has its error only when rank 1 is done,
// however long that takes.
TEST_P(LatePeerTest, NobodyWritesOnceTheErrorIsThere) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store& store) {
    auto mine = comm.allocate({100}, at::kFloat);
    const auto views = memory_of(comm).map_peers(mine);
    const auto work = [&] {
      if (comm.rank() == 0) {
        store.get("rank 1 works", 20s);
        comm.abort("enough");
        store.set("aborted", "");
      } else if (comm.rank() == 1) {
        store.set("rank 1 works", "");
        store.get("aborted", 20s);
        // There is no event for "it does not give up": more than it ever waited.
        EXPECT_THAT(comm_error([&] { store.get("nothing", 1500ms); }),
                    HasSubstr("nothing"));
        views[0].fill_(7);
        store.set("written", "");
      }
    };
    EXPECT_THAT(comm_error([&] { memory_of(comm).work_jointly(1, work).wait(); }),
                HasSubstr("enough"));
    if (comm.rank() == 0) {
      EXPECT_TRUE(store.has("written"));
    }
  });
}

// Two ranks have to do with it, and one may look on: more would only look on, too.
INSTANTIATE_TEST_SUITE_P(EveryWorld, LatePeerTest,
                         testing::ValuesIn(test::every_checked_world({2, 3})),
                         test::world_name);

// Ranks that can be stopped.
class StoppedPeerTest : public testing::TestWithParam<test::World> {};

// Rank 1 is stopped in the middle of its work for longer than anyone waits, and then
// goes on: what it writes reaches nothing that rank 0 has made meanwhile.
TEST_P(StoppedPeerTest, MemoryThatItMayStillWriteIsNotUsedAgain) {
  auto world = GetParam();
  world.timeout = 300ms;
  test::run_ranks(world, [](Communicator& comm, Store& store) {
    auto mine = comm.allocate({100'000}, at::kFloat);
    auto views = memory_of(comm).map_peers(mine);
    const auto work = [&] {
      if (comm.rank() != 1) return;
      store.set("pid", std::to_string(getpid()));
      raise(SIGSTOP);
      views[0].fill_(7);
      store.set("written", "");
    };
    EXPECT_THAT(comm_error([&] {
                  memory_of(comm).work_jointly(1, work).wait();
                  comm.barrier().wait();
                }),
                HasSubstr("rank 1"));
    if (comm.rank() == 1) store.set("rank 1 is done", "");
    mine = Tensor();
    views.clear();  // it has the own one too
    if (comm.rank() == 0) {
      std::vector<Tensor> made;
      for (int i = 0; i < 4; ++i) made.push_back(comm.allocate({100'000}, at::kFloat));
      kill(std::stoi(store.get("pid", 20s)), SIGCONT);
      store.get("written", 20s);
      for (const auto& x : made) EXPECT_EQ(x.abs().max().item<float>(), 0);
      // Once it is done the memory is free again: three times what may be there at
      // once.
      const int64_t before = memory_of(comm).allocated_bytes();
      for (int i = 0; i < 3; ++i) made[0] = comm.allocate({100'000}, at::kFloat);
      EXPECT_LT(memory_of(comm).allocated_bytes(), before);
    }
    store.add("done", 1);
    while (store.add("done", 0) < comm.size()) usleep(1000);
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, StoppedPeerTest,
                         testing::ValuesIn(test::only(test::Kind::kProcesses,
                                                      test::every_checked_world({2, 3,
                                                                                 5}))),
                         test::world_name);

}  // namespace
}  // namespace cohort
