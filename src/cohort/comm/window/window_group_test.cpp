// SPDX-License-Identifier: Apache-2.0
// The start, the failure and the end of windows, in memory of the host.
#include "cohort/comm/window/window_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/window/host_windows_test.h"
#include "cohort/comm/window/window_call.h"

namespace cohort::window_backend {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Makes a group on each of two ranks, whose drivers `change` prepares, and returns what
// each is refused with. The communicators of the host must be usable after that.
std::vector<std::string> refusals(
    TestingWindows& windows,
    const std::function<void(int rank, HostWindows& driver)>& change) {
  auto hosts = make_local(2, 20s);
  std::vector<std::string> refused(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto driver = std::make_shared<HostWindows>(windows);
      change(rank, *driver);
      std::shared_ptr<Communicator> host = std::move(hosts[rank]);
      try {
        WindowGroup group(driver, host, {}, {});
      } catch (const ConfigError& error) {
        refused[rank] = error.what();
      }
      EXPECT_EQ(driver->opened, 0);
      EXPECT_EQ(driver->mapped, 0);
      auto x = at::ones({3});
      host->all_reduce(x, ReduceOp::kSum).wait();
      EXPECT_EQ(x[0].item<float>(), 2);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(windows.count(), 0u);
  return refused;
}

TEST(WindowGroup, MemoryIsGivenBackWhenAllArePart) {
  TestingWindows windows;
  for (const auto& refused : refusals(windows, [](int, HostWindows&) {}))
    EXPECT_EQ(refused, "");
}

TEST(WindowGroup, RanksOnDifferentGpusAreRefusedOnAll) {
  TestingWindows windows;
  const auto refused = refusals(windows, [](int rank, HostWindows& driver) {
    driver.gpu = rank == 0 ? "one" : "another";
  });
  for (const auto& message : refused)
    EXPECT_THAT(message, HasSubstr("rank 1 is on another GPU than rank 0"));
}

TEST(WindowGroup, WhatOneRankCannotOpenIsToldToAll) {
  TestingWindows windows;
  const auto refused = refusals(windows, [](int rank, HostWindows& driver) {
    if (rank == 0) driver.why_not_open = "the driver says no";
  });
  for (const auto& message : refused)
    EXPECT_THAT(message, HasSubstr("rank 0: the driver says no"));
}

// Rank 1 never comes; a lane of rank 0 waits for it until another thread gives up.
TEST(WindowGroup, AnAbortLetsLanesGoOn) {
  TestingWindows windows;
  run_windows(2, windows, [](Communicator& comm, WindowGroup& group) {
    if (comm.rank() == 1) return comm.barrier().wait();
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      group.abort("enough");
    });
    group.enter("all_reduce");
    WindowCall call(group, "all_reduce");
    EXPECT_THROW(call.reduce_all(at::ones({1000}), ReduceOp::kSum), CommError);
    group.leave(nullptr);
    other.join();
    EXPECT_THROW(group.enter("all_reduce"), CommError);
    comm.barrier().wait();
  });
  EXPECT_EQ(windows.count(), 0u);
}

// Each world has windows of its own, and loses them with a rank that gives up in the
// middle of a call.
TEST(WindowGroup, WorldsThatAreLostLeaveNothingBehind) {
  TestingWindows windows;
  for (int generation = 0; generation < 4; ++generation) {
    SCOPED_TRACE(generation);
    const int lost = generation % 3;
    run_windows(3, windows, [&](Communicator& comm, WindowGroup& group) {
      const auto sum = [&] {
        const Tensor x = at::ones({1000});
        group.enter("all_reduce");
        WindowCall(group, "all_reduce").reduce_all(x, ReduceOp::kSum);
        group.leave(nullptr);
        return x[999].item<float>();
      };
      EXPECT_EQ(sum(), 3);
      comm.barrier().wait();
      if (comm.rank() == lost) {
        group.enter("all_reduce");
        group.begin_post(kAll);
        group.leave(nullptr);
        return group.abort("enough");
      }
      std::thread watch([&] {  // as the agent tells of a lost rank
        std::this_thread::sleep_for(50ms);
        group.abort("a peer is lost");
      });
      EXPECT_THROW(sum(), CommError);
      group.leave(nullptr);
      watch.join();
    });
    EXPECT_EQ(windows.count(), 0u);
  }
}

// A process that has ended uses nothing any more, and does not say so.
TEST(WindowMemory, WhatNobodyHasOpenButThoseWhoAreGoneIsGivenBack) {
  TestingWindows windows;
  auto hosts = make_local(2, 20s);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto driver = std::make_shared<HostWindows>(windows);
      std::shared_ptr<Communicator> host = std::move(hosts[rank]);
      WindowMemory memory(driver, host, {.for_all = 256, .for_one = 64});
      if (rank == 1) return host->barrier().wait();
      int asked = 0;
      memory.part([] { return false; },
                  [&](int peer) { return peer == 1 && ++asked > 3; });
      EXPECT_EQ(asked, 4);
      EXPECT_EQ(driver->opened, 0);
      host->barrier().wait();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(windows.count(), 1u);  // that of the one that is gone
}

// Lanes take again what they were given.
TEST(WindowGroup, WaitsAreReleasedUntilNothingIsUnderWay) {
  TestingWindows windows;
  run_windows(2, windows, [](Communicator& comm, WindowGroup& group) {
    if (comm.rank() == 1) return comm.barrier().wait();
    group.enter("a call");
    std::thread other([&] { group.abort("enough"); });
    std::this_thread::sleep_for(50ms);
    for (int k = 0; k < 10; ++k) {
      group.begin_read(1, kAll);  // nobody posts
      group.end_read(1, kAll);
    }
    group.leave(nullptr);
    other.join();
    comm.barrier().wait();
  });
}

// Nobody knows of replays: one may also begin when the group is broken.
TEST(WindowGroup, AnAbortLetsReplaysGoOn) {
  TestingWindows windows;
  run_windows_and_drivers(
      2, windows, [](Communicator& comm, WindowGroup& group, HostWindows& driver) {
        if (comm.rank() == 1) return comm.barrier().wait();
        const auto reads = driver.capture([&] {
          for (int k = 0; k < 5; ++k) {
            group.begin_read(1, kAll);
            group.end_read(1, kAll);
          }
        });
        std::thread other([&] {
          std::this_thread::sleep_for(50ms);
          group.abort("enough");
        });
        HostWindows::replay(reads);
        other.join();
        HostWindows::replay(reads);
        comm.barrier().wait();
      });
}

// What one rank says in its lane, and expects to read in the same order of the others:
// numbers that grow, whether it is in a call or a replay.
class Talk {
 public:
  Talk(WindowGroup& group, HostWindows& driver) : group_(group), driver_(driver) {}

  // As a call of all: a post is one ahead of the reads.
  void with_all(int rounds) {
    for (int k = 0; k <= rounds; ++k) {
      if (k < rounds) {
        say(group_.begin_post(kAll), said_to_all_);
        group_.end_post(kAll);
      }
      if (k == 0) continue;
      const auto halves = group_.begin_reads();
      driver_.in_lane([this, halves] {
        ++heard_of_all_;
        for (int r = 0; r < group_.size(); ++r)
          EXPECT_EQ(number_at(halves[r]), 100 * heard_of_all_ + r);
      });
      group_.end_reads();
    }
  }

  void with_neighbours() {
    const int n = group_.size(), next = (group_.rank() + 1) % n;
    const int last = (group_.rank() + n - 1) % n;
    say(group_.begin_post(next), said_to_next_);
    group_.end_post(next);
    const std::byte* const half = group_.begin_read(last, group_.rank());
    driver_.in_lane([this, half, last] {
      EXPECT_EQ(number_at(half), 100 * ++heard_of_last_ + last);
    });
    group_.end_read(last, group_.rank());
  }

 private:
  void say(std::byte* half, int& said) {
    driver_.in_lane([this, half, &said] {
      const int number = 100 * ++said + group_.rank();
      std::memcpy(half, &number, sizeof(number));
    });
  }
  static int number_at(const std::byte* half) {
    int number = 0;
    std::memcpy(&number, half, sizeof(number));
    return number;
  }

  WindowGroup& group_;
  HostWindows& driver_;
  int said_to_all_ = 0, heard_of_all_ = 0, said_to_next_ = 0, heard_of_last_ = 0;
};

// Odd numbers of posts: a replay begins in the half in which the last one ended.
TEST(WindowGroup, CallsAndReplaysFollowOneAnotherInAnyOrder) {
  TestingWindows windows;
  for (const int size : {2, 3, 5}) {
    run_windows_and_drivers(size, windows,
                            [](Communicator&, WindowGroup& group, HostWindows& driver) {
                              Talk talk(group, driver);
                              talk.with_all(1);
                              const auto odd = driver.capture([&] {
                                talk.with_all(3);
                                talk.with_neighbours();
                              });
                              const auto even = driver.capture([&] {
                                talk.with_neighbours();
                                talk.with_all(1);
                                talk.with_all(5);
                                talk.with_neighbours();
                              });
                              std::minstd_rand chance(7);  // the same on every rank
                              for (int turn = 0; turn < 300; ++turn) {
                                const auto what = chance() % 4;
                                if (what == 0) HostWindows::replay(odd);
                                if (what == 1) HostWindows::replay(even);
                                if (what == 2) talk.with_all(1 + turn % 3);
                                if (what == 3) talk.with_neighbours();
                              }
                            });
    EXPECT_EQ(windows.count(), 0u);
  }
}

}  // namespace
}  // namespace cohort::window_backend
