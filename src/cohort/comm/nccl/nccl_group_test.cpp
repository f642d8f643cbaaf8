// SPDX-License-Identifier: Apache-2.0
// A group over an NCCL that does what the test says: no GPU is needed.
#include "cohort/comm/nccl/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort::nccl_backend {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// What the functions of the table look at: they are C, and carry nothing along.
struct FakeState {
  std::atomic<int> steps_to_settle = 0;  // that calls are in progress for
  std::atomic<Result> async = kSuccess;
  std::atomic<int> inits = 0, aborts = 0, finalizes = 0, destroys = 0;
} fake;

std::shared_ptr<const Library> fake_library() {
  auto table = std::make_shared<Library>();
  table->GetUniqueId = [](UniqueId* id) {
    id->bytes[127] = 42;
    return kSuccess;
  };
  table->CommInitRankConfig = [](Handle* handle, int, UniqueId id, int,
                                 LibraryConfig* config) {
    ++fake.inits;
    *handle = reinterpret_cast<Handle>(&fake);
    EXPECT_EQ(config->blocking, 0);
    return id.bytes[127] == 42 ? kInProgress : kInvalidArgument;
  };
  table->CommGetAsyncError = [](Handle, Result* state) {
    *state = fake.steps_to_settle > 0 ? kInProgress : fake.async.load();
    if (fake.steps_to_settle > 0) --fake.steps_to_settle;
    return kSuccess;
  };
  table->CommFinalize = [](Handle) { return ++fake.finalizes, kInProgress; };
  table->CommDestroy = [](Handle) { return ++fake.destroys, kSuccess; };
  table->CommAbort = [](Handle) { return ++fake.aborts, kSuccess; };
  table->GetErrorString = [](Result) { return "a remote error"; };
  table->GetLastError = [](Handle) { return "a socket closed\nand more"; };
  return table;
}

class FakeFlight final : public device_comm::Flight {
 public:
  bool query() override { return lands; }
  std::atomic<bool> lands = false;
};

// The end of an ncclComm has a thread of its own.
void expect_aborted() {
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (fake.aborts == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(fake.aborts, 1);
}

class NcclGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    fake.steps_to_settle = 3;
    fake.async = kSuccess;
    fake.inits = fake.aborts = fake.finalizes = fake.destroys = 0;
  }

  static std::shared_ptr<NcclGroup> connect(
      std::chrono::milliseconds timeout = 10s,
      std::shared_ptr<Communicator> host = std::move(make_local(1, 10s)[0])) {
    return std::make_shared<NcclGroup>(
        fake_library(), std::move(host),
        DeviceGroupOptions{.timeout = timeout, .join_timeout = timeout});
  }

  static std::string comm_error(const std::function<void()>& function) {
    return test::message_of<CommError>(function);
  }

  static Result succeed(const Library&, Handle) { return kSuccess; }
};

TEST_F(NcclGroupTest, SettlesWhatIsInProgressAndEndsInPeace) {
  auto group = connect();
  EXPECT_EQ(fake.inits, 1);
  EXPECT_EQ(fake.steps_to_settle, 0);
  fake.steps_to_settle = 5;
  group->start("all_reduce", [](const Library&, Handle) { return kInProgress; });
  EXPECT_EQ(fake.steps_to_settle, 0);
  group.reset();
  EXPECT_EQ(fake.finalizes, 1);
  EXPECT_EQ(fake.destroys, 1);
  EXPECT_EQ(fake.aborts, 0);
}

TEST_F(NcclGroupTest, RanksThatDoNotComeAreGivenUp) {
  fake.steps_to_settle = 1 << 30;
  EXPECT_THAT(comm_error([] { (void)connect(100ms); }),
              HasSubstr("[comm.nccl] connect: not all of its ranks came in time"));
  expect_aborted();
}

TEST_F(NcclGroupTest, AWaitEndsWithTheFlightOrTheTimeout) {
  auto group = connect(150ms);
  FakeFlight first, second;
  first.lands = true;
  EXPECT_TRUE(group->poll(first));
  group->wait("all_reduce(float32, 3)", first);
  EXPECT_FALSE(group->poll(second));
  EXPECT_THAT(comm_error([&] { group->wait("all_reduce(float32, 3)", second); }),
              HasSubstr("[comm.nccl] all_reduce(float32, 3): not done after 0.15 s "
                        "(rank 0 of 1)"));
  expect_aborted();
  // Broken for good, and kernels that ended early are not taken for done.
  second.lands = true;
  EXPECT_THAT(comm_error([&] { group->wait("again", second); }), HasSubstr("not done"));
  EXPECT_THAT(comm_error([&] { group->start("broadcast", succeed); }),
              HasSubstr("not done after"));
  group->wait("all_reduce(float32, 3)", first);
  group.reset();
  expect_aborted();
  EXPECT_EQ(fake.finalizes, 0);
}

TEST_F(NcclGroupTest, WhatNcclNoticesIsToldInOneLine) {
  auto group = connect();
  FakeFlight flight;
  fake.async = kRemoteError;
  const std::string message = comm_error([&] { group->wait("all_gather", flight); });
  EXPECT_THAT(message, HasSubstr("all_gather: a remote error: a socket closed (rank"));
  expect_aborted();
}

TEST_F(NcclGroupTest, AnAbortEndsAWaitButNotWhatWasDone) {
  auto group = connect();
  auto landed = std::make_shared<FakeFlight>(), lost = std::make_shared<FakeFlight>();
  group->watch(landed);
  group->watch(lost);
  landed->lands = true;
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    group->abort("out of luck");
    lost->lands = true;
  });
  EXPECT_THAT(comm_error([&] { group->wait("all_reduce", *lost); }),
              HasSubstr("out of luck"));
  group->wait("all_reduce", *landed);
  EXPECT_THAT(comm_error([&] { group->wait("all_reduce", *lost); }),
              HasSubstr("out of luck"));
  other.join();
  expect_aborted();
}

TEST_F(NcclGroupTest, AnAbortOfAPeerIsHeardOverTheHost) {
  auto hosts = make_local(2, 10s);
  std::thread peer([&] {
    auto group = connect(10s, std::move(hosts[1]));
    group->abort("my disk is full");
  });
  fake.steps_to_settle = 0;
  auto group = connect(10s, std::move(hosts[0]));
  FakeFlight flight;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(comm_error([&] { group->wait("all_reduce", flight); }),
              HasSubstr("my disk is full"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  peer.join();
}

}  // namespace
}  // namespace cohort::nccl_backend
