// SPDX-License-Identifier: Apache-2.0
// Relays between processes, over the backends that they are for, with the host as their
// device: no GPU is needed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cohort/comm/relay/host_relay_test.h"
#include "cohort/comm/relay/relay_call.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using relay_backend::HostRelay;
using relay_backend::RelayCall;
using relay_backend::RelayGroup;
using test::comm_error;
using testing::HasSubstr;

// A rank's relay, with one lane, over a communicator that the test has.
struct Relayed {
  explicit Relayed(Communicator& comm, std::chrono::milliseconds timeout = 20s)
      : lane(driver->enter(0)), group(driver, borrowed(comm), {.timeout = timeout}) {}

  void sum(const Tensor& x) {
    static_cast<relay_backend::HostQueue*>(lane)->keep(x);
    RelayCall(group, "all_reduce", lane).reduce_all(x, ReduceOp::kSum);
  }
  // For all that the lane was given.
  void wait() {
    const auto end = driver->so_far();
    group.watch(end);
    group.wait("the work of a lane", *end);
  }

  static std::shared_ptr<Communicator> borrowed(Communicator& comm) {
    return {&comm, [](Communicator*) {}};
  }

  std::shared_ptr<HostRelay> driver = std::make_shared<HostRelay>();
  device_comm::Stream lane;
  RelayGroup group;
};

class RelayTest : public testing::TestWithParam<test::World> {};

TEST_P(RelayTest, SumsAreThoseOfTheBackendToTheBit) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Relayed relay(comm);
    at::manual_seed(static_cast<uint64_t>(comm.rank()));
    for (const int64_t numel : {1, 1000, 100'000}) {
      const Tensor mine = at::randn({numel}).div(3);
      Tensor x = mine.clone(), y = mine.clone();
      relay.sum(x);
      comm.all_reduce(y, ReduceOp::kSum).wait();
      relay.wait();
      EXPECT_TRUE(at::equal(x, y)) << numel;
    }
  });
}

// Two threads of a rank use two groups of one world.
TEST_P(RelayTest, TheRankUsesItsCommunicatorMeanwhile) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Relayed relay(comm);
    std::vector<Tensor> sums;
    for (int turn = 0; turn < 50; ++turn) {
      sums.push_back(at::full({3000}, turn, at::kLong));
      relay.sum(sums.back());
      Tensor y = at::ones({turn + 1});
      comm.all_reduce(y, ReduceOp::kSum).wait();
      EXPECT_EQ(y[turn].item<double>(), comm.size());
    }
    relay.wait();
    for (int turn = 0; turn < 50; ++turn)
      EXPECT_EQ(sums[turn][2999].item<int64_t>(), turn * comm.size());
  });
}

TEST_P(RelayTest, NeighboursExchange) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Relayed relay(comm);
    const int n = comm.size(), me = comm.rank();
    for (int turn = 0; turn < 10; ++turn) {
      const Transfer send[] = {{(me + 1) % n, at::full({500}, me + turn, at::kInt)}};
      const Transfer receive[] = {{(me + n - 1) % n, at::zeros({500}, at::kInt)}};
      RelayCall(relay.group, "exchange", relay.lane).exchange(send, receive);
      relay.wait();
      EXPECT_EQ(receive[0].tensor[499].item<int>(), (me + n - 1) % n + turn);
    }
  });
}

// The lanes of the others run on, and their ranks are told who is gone.
TEST_P(RelayTest, AKilledRankIsNamed) {
  test::run_ranks(GetParam(),
                  [](Communicator& comm, Store&) {
                    Relayed relay(comm, 10s);
                    const Tensor x = at::ones({1000});
                    relay.sum(x);
                    relay.wait();
                    if (comm.rank() == 1) raise(SIGKILL);
                    EXPECT_THAT(comm_error([&] {
                                  while (true) {
                                    relay.sum(x);
                                    relay.wait();
                                  }
                                }),
                                HasSubstr("rank 1"));
                    relay.driver->settle();
                    EXPECT_NE(comm_error([&] { relay.group.check("all_reduce"); }), "");
                  },
                  {1});
}

TEST_P(RelayTest, AnAbortReachesThePeers) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store&) {
    Relayed relay(comm);
    const Tensor x = at::ones({1000});
    relay.sum(x);
    relay.wait();
    if (comm.rank() == 0) return relay.group.abort("rank 0 has had enough");
    EXPECT_THAT(comm_error([&] {
                  relay.sum(x);
                  relay.wait();
                }),
                HasSubstr("rank 0 has had enough"));
  });
}

// The others never come to the call: neither its lane nor the end of its group waits as
// long as a call may.
TEST_P(RelayTest, AnAbortEndsTheCallThatIsUnderWay) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store& store) {
    std::chrono::steady_clock::time_point begin;
    const Tensor x = at::ones({1000});
    {
      Relayed relay(comm);
      relay.sum(x);
      relay.wait();
      if (comm.rank() > 0) return (void)store.get("ended", 20s);
      begin = std::chrono::steady_clock::now();
      relay.sum(x);
      std::this_thread::sleep_for(50ms);  // its thread is in the call
      relay.group.abort("enough");
      relay.driver->settle();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    store.set("ended", "");
  });
}

std::vector<test::World> worlds_of_relays() {
  std::vector<test::World> worlds;
  for (const char* backend : {"shm", "gloo"})
    for (const int size : {2, 4})
      worlds.push_back({backend, size, test::Kind::kProcesses});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(Backends, RelayTest, testing::ValuesIn(worlds_of_relays()),
                         test::world_name);

}  // namespace
}  // namespace cohort
