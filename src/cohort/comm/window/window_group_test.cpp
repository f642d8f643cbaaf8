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
  // What a peer may still use is left to the process.
  EXPECT_GT(windows.count(), 0u);
}

// One that has not heard of it yet writes its counts over what lets waits go on.
TEST(WindowGroup, WaitsAreReleasedUntilNothingIsUnderWay) {
  TestingWindows windows;
  run_windows(2, windows, [](Communicator& comm, WindowGroup& group) {
    if (comm.rank() == 0) group.enter("a call");
    comm.barrier().wait();
    if (comm.rank() == 0) {
      std::thread other([&] { group.abort("enough"); });
      std::this_thread::sleep_for(50ms);
      comm.barrier().wait();
      comm.barrier().wait();  // now it is written over
      group.begin_read(1, kAll);
      group.end_read(1, kAll);
      group.begin_read(1, kAll);  // there is no second post
      group.leave(nullptr);
      other.join();
      return;
    }
    comm.barrier().wait();
    group.begin_post(kAll);
    group.end_post(kAll);
    comm.barrier().wait();
  });
}

}  // namespace
}  // namespace cohort::window_backend
