// SPDX-License-Identifier: Apache-2.0
// What goes through windows, which are memory of the host: no GPU is needed.
#include "cohort/comm/window/window_call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/device/testing_device_call.h"
#include "cohort/comm/window/host_windows_test.h"

namespace cohort::window_backend {
namespace {

class WindowCallTest : public testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Communicator&, WindowCall&)>& body) {
    run_windows(GetParam(), windows_, [&](Communicator& comm, WindowGroup& group) {
      WindowCall call(group, "a test");
      body(comm, call);
    });
    EXPECT_EQ(windows_.count(), 0u);
  }

 private:
  TestingWindows windows_;
};

TEST_P(WindowCallTest, ReductionsAreThoseOfEveryBackend) {
  run(device_comm::expect_reductions_of_every_backend);
}

TEST_P(WindowCallTest, PartsAndTransfersArriveAlsoAtTheSender) {
  run([](Communicator& comm, WindowCall& call) {
    for (int turn = 0; turn < 10; ++turn) expect_parts_and_transfers(comm, call);
  });
}

TEST_P(WindowCallTest, EveryRankGetsAllParts) {
  run([](Communicator& comm, WindowCall& call) {
    const int n = comm.size(), me = comm.rank();
    for (const int64_t numel : {1, 31, 32, 33, 64, 65, 700}) {
      const Tensor mine = device_comm::testing_values(me, numel, at::kLong);
      const Tensor all = at::zeros({n, numel}, at::kLong);
      call.gather(all, mine);
      const Tensor own = at::zeros({n, numel}, at::kLong);
      own[me].copy_(mine);
      call.gather(own, own[me]);
      for (int r = 0; r < n; ++r) {
        const Tensor expected = device_comm::testing_values(r, numel, at::kLong);
        EXPECT_TRUE(at::equal(all[r], expected)) << numel;
        EXPECT_TRUE(at::equal(own[r], expected)) << numel;
      }
    }
  });
}

TEST_P(WindowCallTest, EveryRankMayBeTheRoot) {
  run([](Communicator& comm, WindowCall& call) {
    for (int turn = 0; turn < 30; ++turn) {
      const int root = turn * 7 % comm.size();
      const Tensor told = at::full({1 + 40 * (turn % 5)}, comm.rank(), at::kLong);
      call.broadcast(told, root);
      EXPECT_TRUE(at::equal(told, at::full_like(told, root)));
    }
  });
}

// Only two of the ranks know of a transfer; calls of all come in between.
TEST_P(WindowCallTest, TransfersOfManyRoundsGoBothWaysAtOnce) {
  run([](Communicator& comm, WindowCall& call) {
    const int n = comm.size(), me = comm.rank();
    const int64_t numel = 500;
    for (int turn = 0; turn < 5; ++turn) {
      const Transfer to_next{(me + 1) % n, at::full({numel}, me, at::kFloat)};
      const Transfer from_last{(me + n - 1) % n, at::zeros({numel}, at::kFloat)};
      call.exchange(std::vector{to_next}, std::vector{from_last});
      EXPECT_TRUE(
          at::equal(from_last.tensor, at::full({numel}, (me + n - 1) % n, at::kFloat)));
      if (me < 2 && n > 1) {
        const Transfer send{1 - me, at::full({100 + 300 * me}, me, at::kInt)};
        const Transfer receive{1 - me, at::zeros({400 - 300 * me}, at::kInt)};
        call.exchange(std::vector{send}, std::vector{receive});
        EXPECT_TRUE(at::equal(receive.tensor, at::full_like(receive.tensor, 1 - me)));
      }
      const Tensor sum = at::ones({70}, at::kDouble);
      call.reduce_all(sum, ReduceOp::kSum);
      EXPECT_EQ(sum.sum().item<double>(), 70 * n);
    }
  });
}

// A send in one call, its receive in another: two halves are buffered.
TEST_P(WindowCallTest, SmallSendsNeedNoReceiveYet) {
  run([](Communicator& comm, WindowCall& call) {
    const int n = comm.size(), me = comm.rank();
    if (n == 1) return;
    for (int turn = 0; turn < 20; ++turn) {
      const Tensor got = at::zeros({10}, at::kInt);
      const Transfer send{(me + 1) % n, at::full({10}, me + turn, at::kInt)};
      const Transfer receive{(me + n - 1) % n, got};
      call.exchange(std::vector{send}, {});
      call.exchange({}, std::vector{receive});
      EXPECT_TRUE(at::equal(got, at::full_like(got, (me + n - 1) % n + turn)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, WindowCallTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cohort::window_backend
