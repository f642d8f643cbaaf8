// SPDX-License-Identifier: Apache-2.0
// Deadlines of a local world, on a clock that stands still until the test moves it.
#include "cohort/comm/local/local.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <semaphore>
#include <thread>

#include "cohort/core/clock.h"
#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr auto kLimit = 120s;     // only a hang reaches it
constexpr auto kTimeout = 60min;  // nobody waits so long but on the virtual clock

class LocalClockTest : public testing::TestWithParam<int> {
 protected:
  // What each rank's `body` threw as a CommError. Once started_ is released, the clock
  // moves whenever `waiting` ranks wait.
  std::vector<std::string> run(int waiting,
                               const std::function<void(Communicator&)>& body) {
    auto comms = make_local(
        GetParam(), {.timeout = kTimeout, .clock = &clock_, .faults = &faults_});
    std::vector<std::string> errors(comms.size());
    std::atomic<bool> ended = false;
    std::vector<std::jthread> threads;
    for (auto& comm : comms)
      threads.emplace_back([&] {
        errors[comm->rank()] = test::comm_error([&] { body(*comm); });
        ended = true;
      });
    EXPECT_TRUE(started_.try_acquire_for(kLimit));
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!ended && std::chrono::steady_clock::now() < end)
      if (clock_.wait_for_sleepers(waiting, 10ms)) clock_.advance(kTimeout / 4);
    EXPECT_TRUE(ended) << "nobody noticed";
    if (!ended) comms[0]->abort("the test gives up");
    threads.clear();
    return errors;
  }

  VirtualClock clock_;
  FaultPlan faults_;
  std::binary_semaphore started_{0};
};

TEST_P(LocalClockTest, AFrozenRankIsNamedAtTheDeadline) {
  for (const bool splits : {false, true}) {
    const auto start = clock_.now();
    std::latch others(GetParam() - 1);
    const auto errors = run(GetParam() - 1, [&](Communicator& world) {
      const auto part = splits ? world.split(0) : nullptr;
      Communicator& comm = splits ? *part : world;
      comm.barrier().wait();
      if (comm.rank() == 1) {
        started_.release();
        others.wait();
      }
      try {
        comm.barrier().wait();
      } catch (...) {
        if (comm.rank() != 1) others.count_down();
        throw;
      }
    });
    EXPECT_GT(clock_.now() - start, kTimeout);
    for (const auto& error : errors)
      EXPECT_THAT(error,
                  AllOf(HasSubstr("timeout 3600 s"), HasSubstr("rank 1 is missing"),
                        HasSubstr("last call was barrier (collective 0), its last "
                                  "progress ")));
  }
}

// The sender goes on as if it had arrived; all others miss it.
TEST_P(LocalClockTest, ALostArrivalIsFoundAtTheDeadline) {
  faults_.arm(
      {.name = "comm.message", .rank = 1, .count = 2, .action = Fault::Action::kDrop});
  started_.release();
  const auto errors = run(GetParam(), [&](Communicator& comm) {
    auto x = at::ones({10});
    for (int i = 0; i < 3; ++i) comm.all_reduce(x, ReduceOp::kSum).wait();
  });
  EXPECT_EQ(faults_.pending(), 0);
  for (const auto& error : errors)
    EXPECT_THAT(error,
                AnyOf(HasSubstr("rank 1 is missing"), HasSubstr("rank 1 waited ")));
}

TEST_P(LocalClockTest, ALostTransferIsFoundAtTheDeadline) {
  for (const int victim : {0, 1}) {
    faults_.arm(
        {.name = "comm.message", .rank = victim, .action = Fault::Action::kDrop});
    started_.release();
    const auto errors = run(GetParam(), [&](Communicator& comm) {
      const Transfer send[] = {{1, at::ones({10})}}, receive[] = {{0, at::ones({10})}};
      if (comm.rank() == 0) comm.exchange(send, {}).wait();
      if (comm.rank() == 1) comm.exchange({}, receive).wait();
      comm.barrier().wait();
    });
    EXPECT_EQ(faults_.pending(), 0);
    for (const auto& error : errors)
      EXPECT_THAT(error, HasSubstr("rank " + std::to_string(victim)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalClockTest, testing::Values(2, 3, 5));

}  // namespace
}  // namespace cohort
