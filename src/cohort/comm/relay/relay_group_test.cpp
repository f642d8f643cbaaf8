// SPDX-License-Identifier: Apache-2.0
// The lanes, the failure and the end of a relay, with the host as its device.
#include "cohort/comm/relay/relay_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/device/device_family.h"
#include "cohort/comm/relay/host_relay_test.h"
#include "cohort/comm/relay/relay_call.h"
#include "cohort/core/testing_error.h"

namespace cohort::relay_backend {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// In the current lane, a sum over all ranks in place.
void sum_in_lane(RelayGroup& group, device_comm::Stream lane, const Tensor& x) {
  static_cast<HostQueue*>(lane)->keep(x);
  RelayCall(group, "all_reduce", lane).reduce_all(x, ReduceOp::kSum);
}

// What a rank is told in the end, asked for as DeviceCommunicator does.
std::string error_of(RelayGroup& group, device_comm::Flight& flight) {
  return test::message_of<CommError>([&] { group.wait("all_reduce", flight); });
}

bool is_over_soon(device_comm::Flight& flight) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!flight.query() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  return flight.query();
}

// All calls are made before the first lane begins.
TEST(RelayGroup, TheHostWaitsForNothing) {
  run_relays(2, [](Communicator&, RelayGroup& group, HostRelay& driver) {
    const auto lane = driver.enter(0);
    std::atomic<bool> opened = false;
    driver.in_lane([&] { opened.wait(false); });
    std::vector<Tensor> sums;
    for (int k = 0; k < 20; ++k) {
      sums.push_back(at::full({100 + k}, k + group.rank(), at::kLong));
      sum_in_lane(group, lane, sums.back());
    }
    opened = true;
    opened.notify_all();
    driver.settle();
    for (int k = 0; k < 20; ++k)
      EXPECT_TRUE(at::equal(sums[k], at::full({100 + k}, 2 * k + 1, at::kLong)));
  });
}

// The first lane of rank 0 is slow, the second that of rank 1: the order is that of the
// calls, and each lane goes on by itself.
TEST(RelayGroup, CallsOfSeveralLanesKeepTheirOrder) {
  run_relays(2, [](Communicator&, RelayGroup& group, HostRelay& driver) {
    std::vector<Tensor> sums;
    for (int k = 0; k < 30; ++k) {
      const size_t number = static_cast<size_t>(k % 3);
      const auto lane = driver.enter(number);
      if (number == static_cast<size_t>(group.rank()))
        driver.in_lane([] { std::this_thread::sleep_for(2ms); });
      sums.push_back(at::full({1 + 50 * k}, k + group.rank(), at::kDouble));
      sum_in_lane(group, lane, sums.back());
    }
    for (const size_t number : {0, 1, 2}) {
      driver.enter(number);
      driver.settle();
    }
    for (int k = 0; k < 30; ++k)
      EXPECT_TRUE(at::equal(sums[k], at::full({1 + 50 * k}, 2 * k + 1, at::kDouble)));
  });
}

TEST(RelayGroup, ALaneThatMakesNoCallDoesNotWait) {
  run_relays(2, [](Communicator& comm, RelayGroup& group, HostRelay& driver) {
    const Tensor x = at::ones({10});
    if (comm.rank() == 0) {
      sum_in_lane(group, driver.enter(0), x);  // its peer comes later
      driver.enter(1);
      driver.settle();
      EXPECT_EQ(x[0].item<float>(), 1);
    }
    comm.barrier().wait();
    if (comm.rank() == 1) sum_in_lane(group, driver.enter(0), x);
    driver.enter(0);
    driver.settle();
    EXPECT_EQ(x[0].item<float>(), 2);
  });
}

// Each stretch is larger than the last, which lanes still use when it is outgrown.
TEST(RelayGroup, MemoryGrowsWithItsCalls) {
  run_relays(2, [](Communicator&, RelayGroup& group, HostRelay& driver) {
    const auto lane = driver.enter(0);
    std::vector<Tensor> sums;
    for (int k = 1; k <= 4; ++k) {
      sums.push_back(at::full({k * 200'000}, k, at::kLong));
      sum_in_lane(group, lane, sums.back());
    }
    driver.settle();
    for (int k = 1; k <= 4; ++k)
      EXPECT_TRUE(at::equal(sums[k - 1], at::full({k * 200'000}, 2 * k, at::kLong)));
    sum_in_lane(group, lane, sums[0]);
    EXPECT_EQ(driver.pinned(), 2u);  // the word, and a stretch of one lane
  });
}

// The rank's thread uses the host's communicator while the relay is in a call.
TEST(RelayGroup, TheHostsCommunicatorIsFreeMeanwhile) {
  auto hosts = make_local(2, 20s);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::shared_ptr<Communicator> host = std::move(hosts[rank]);
      const auto driver = std::make_shared<HostRelay>();
      RelayGroup group(driver, host, {.timeout = 20s});
      const Tensor x = at::ones({1000});
      const auto lane = driver->enter(0);
      if (rank == 0) sum_in_lane(group, lane, x);
      for (int k = 0; k < 100; ++k) {
        Tensor y = at::ones({k + 1});
        host->all_reduce(y, ReduceOp::kSum).wait();
        EXPECT_EQ(y[k].item<float>(), 2);
      }
      if (rank == 1) sum_in_lane(group, lane, x);
      driver->settle();
      EXPECT_EQ(x[999].item<float>(), 2);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Rank 1 never comes; a lane of rank 0 waits for it until another thread gives up.
TEST(RelayGroup, AnAbortLetsLanesGoOn) {
  run_relays(2, [](Communicator& comm, RelayGroup& group, HostRelay& driver) {
    if (comm.rank() == 1) return comm.barrier().wait();
    const auto lane = driver.enter(0);
    const Tensor x = at::ones({1000});
    sum_in_lane(group, lane, x);
    const auto end = driver.so_far();
    group.watch(end);
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      group.abort("enough");
    });
    EXPECT_THAT(error_of(group, *end), HasSubstr("enough"));
    EXPECT_TRUE(is_over_soon(*end));
    other.join();
    EXPECT_THROW(group.enter("all_reduce"), CommError);
    EXPECT_THROW(sum_in_lane(group, lane, x), CommError);
    comm.barrier().wait();
  });
}

// A lane of the first group goes on behind what the second was made to end early: what
// is done by then is done, what is done later means nothing.
TEST(RelayGroup, TheEndOfOneGroupIsTheEndOfItsFamily) {
  run_relays(1, [](Communicator& comm, RelayGroup& group, HostRelay& driver) {
    const auto family = std::make_shared<device_comm::DeviceFamily>(comm);
    group.belong_to(family);
    const auto lane = driver.enter(0);
    const Tensor x = at::ones({1000});
    sum_in_lane(group, lane, x);
    const auto before = driver.so_far();
    EXPECT_EQ(error_of(group, *before), "no error");
    family->stop("another group has lost rank 7");
    sum_in_lane(group, lane, x);
    const auto after = driver.so_far();
    group.watch(after);
    for (int asked = 0; asked < 2; ++asked)
      EXPECT_THAT(error_of(group, *after), HasSubstr("another group has lost rank 7"));
    EXPECT_EQ(error_of(group, *before), "no error");
  });
}

// The thread of rank 0 has a deadline of its own, and says which rank is late.
TEST(RelayGroup, APeerThatDoesNotComeBreaksTheGroup) {
  run_relays(
      2,
      [](Communicator& comm, RelayGroup& group, HostRelay& driver) {
        const Tensor x = at::ones({1000});
        if (comm.rank() == 0) {
          sum_in_lane(group, driver.enter(0), x);
          const auto end = driver.so_far();
          EXPECT_TRUE(is_over_soon(*end));
          EXPECT_THAT(error_of(group, *end), HasSubstr("rank 1"));
        }
        comm.barrier().wait();
      },
      300ms);
}

// What its peer has given up, a rank hears of in its next call, with the reason.
TEST(RelayGroup, TheReasonOfAnAbortReachesThePeer) {
  run_relays(2, [](Communicator& comm, RelayGroup& group, HostRelay& driver) {
    const Tensor x = at::ones({1000});
    const auto lane = driver.enter(0);
    sum_in_lane(group, lane, x);
    driver.settle();
    comm.barrier().wait();
    if (comm.rank() == 0) group.abort("rank 0 has had enough");
    comm.barrier().wait();
    if (comm.rank() == 1) {
      sum_in_lane(group, lane, x);
      const auto end = driver.so_far();
      EXPECT_THAT(error_of(group, *end), HasSubstr("rank 0 has had enough"));
    }
    comm.barrier().wait();
  });
}

// It ends although a call of it never does.
TEST(RelayGroup, TheEndDoesNotWaitForALostPeer) {
  const auto begin = std::chrono::steady_clock::now();
  const Tensor x = at::ones({1000});
  run_relays(
      2,
      [&](Communicator& comm, RelayGroup& group, HostRelay& driver) {
        if (comm.rank() == 0) sum_in_lane(group, driver.enter(0), x);
        comm.barrier().wait();
      },
      2s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(RelayGroup, MemoryThatCannotBePinnedIsRefused) {
  auto hosts = make_local(1, 20s);
  const auto driver = std::make_shared<HostRelay>();
  driver->why_not_pinned = "the driver says no";
  EXPECT_THROW(RelayGroup(driver, std::move(hosts[0]), {}), ConfigError);
}

}  // namespace
}  // namespace cohort::relay_backend
