// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/peer_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cohort/core/error.h"
#include "support/ranks.h"

namespace cohort::device_comm {
namespace {

using namespace std::chrono_literals;

void await_end(const PeerProcesses& processes, int rank) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!processes.has_ended(rank) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(processes.has_ended(rank));
}

// A rank that parts before is no loss, but has ended as well.
TEST(PeerProcesses, WhoIsKilledHasEndedAndIsLostUnlessItHasParted) {
  for (const bool parts : {false, true}) {
    const test::World world{"shm", 3, test::Kind::kProcesses};
    test::run_ranks(world,
                    [&](Communicator& comm, Store& store) {
                      PeerProcesses processes(comm);
                      if (comm.rank() == 1 && parts) processes.part();
                      comm.barrier().wait();
                      if (comm.rank() == 1) ::kill(::getpid(), SIGKILL);
                      await_end(processes, 1);
                      EXPECT_EQ(processes.lost(), parts ? -1 : 1);
                      EXPECT_FALSE(processes.has_ended(comm.rank()));
                      // The other one that is left looks at this process, too.
                      store.set(text("looked/", comm.rank()), "");
                      store.get(text("looked/", 2 - comm.rank()), 20s);
                    },
                    /*may_die=*/{1});
  }
}

}  // namespace
}  // namespace cohort::device_comm
