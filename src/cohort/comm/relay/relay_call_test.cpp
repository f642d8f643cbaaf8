// SPDX-License-Identifier: Apache-2.0
// What goes through a relay, with the host as its device: no GPU is needed.
#include "cohort/comm/relay/relay_call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/device/testing_device_call.h"
#include "cohort/comm/relay/host_relay_test.h"

namespace cohort::relay_backend {
namespace {

class RelayCallTest : public testing::TestWithParam<int> {
 protected:
  static void run(const std::function<void(Communicator&, RelayCall&)>& body) {
    run_relays(GetParam(), [&](Communicator& comm, RelayGroup& group, HostRelay&) {
      RelayCall call(group, "a test", nullptr);
      body(comm, call);
    });
  }
};

TEST_P(RelayCallTest, ReductionsAreThoseOfEveryBackend) {
  run(device_comm::expect_reductions_of_every_backend);
}

TEST_P(RelayCallTest, PartsAndTransfersArriveAlsoAtTheSender) {
  run([](Communicator& comm, RelayCall& call) {
    for (int turn = 0; turn < 10; ++turn) expect_parts_and_transfers(comm, call);
  });
}

// The host's backend adds, so in its order: to the bit.
TEST_P(RelayCallTest, SumsHaveTheBitsOfTheHost) {
  run([](Communicator& comm, RelayCall& call) {
    at::manual_seed(static_cast<uint64_t>(comm.rank()));
    for (const int64_t numel : {1, 1000, 300'000}) {
      const Tensor mine = at::randn({numel}).div(3);
      Tensor x = mine.clone(), y = mine.clone();
      call.reduce_all(x, ReduceOp::kSum);
      comm.all_reduce(y, ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(x, y)) << numel;
    }
  });
}

TEST_P(RelayCallTest, EveryRankGetsAllPartsAlsoWhereItsOwnLiesThere) {
  run([](Communicator& comm, RelayCall& call) {
    const int n = comm.size(), me = comm.rank();
    for (const int64_t numel : {1, 33, 700, 400'000}) {
      const Tensor own = at::zeros({n, numel}, at::kLong);
      own[me].copy_(device_comm::testing_values(me, numel, at::kLong));
      call.gather(own, own[me]);
      for (int r = 0; r < n; ++r)
        EXPECT_TRUE(
            at::equal(own[r], device_comm::testing_values(r, numel, at::kLong)));
    }
  });
}

TEST_P(RelayCallTest, EveryRankMayBeTheRoot) {
  run([](Communicator& comm, RelayCall& call) {
    for (int root = 0; root < comm.size(); ++root) {
      const Tensor told = at::full({1 + 40 * root}, comm.rank(), at::kLong);
      call.broadcast(told, root);
      EXPECT_TRUE(at::equal(told, at::full_like(told, root)));
    }
  });
}

// Only two of the ranks know of a transfer; calls of all come in between.
TEST_P(RelayCallTest, TransfersNeedOnlyWhoTheyName) {
  run([](Communicator& comm, RelayCall& call) {
    const int me = comm.rank();
    for (int turn = 0; turn < 5; ++turn) {
      if (me < 2 && comm.size() > 1) {
        const Transfer send{1 - me, at::full({100 + 300 * me}, me, at::kInt)};
        const Transfer receive{1 - me, at::zeros({400 - 300 * me}, at::kInt)};
        call.exchange(std::vector{send}, std::vector{receive});
        EXPECT_TRUE(at::equal(receive.tensor, at::full_like(receive.tensor, 1 - me)));
      }
      const Tensor sum = at::ones({70}, at::kDouble);
      call.reduce_all(sum, ReduceOp::kSum);
      EXPECT_EQ(sum.sum().item<double>(), 70 * comm.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, RelayCallTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cohort::relay_backend
