// SPDX-License-Identifier: Apache-2.0
// Groups within groups, and transfers between two ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/communicator.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::in_memory;
using test::input;
using test::Where;

class TransferTest : public testing::TestWithParam<test::World> {};
// With a peer.
class TwoRanksTest : public testing::TestWithParam<test::World> {};

TEST_P(TransferTest, SplitGroupsRanksOfOneColorInTheirOrder) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int color = comm.rank() % 2;
    auto half = comm.split(color);
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(half->rank(), comm.rank() / 2);
    EXPECT_EQ(half->size(), (comm.size() + 1 - color) / 2);
    for (const int64_t numel : {5, 30'000}) {
      auto x = at::full({numel}, comm.rank(), at::kFloat);
      half->all_reduce(x, ReduceOp::kSum).wait();
      const int n = half->size();
      EXPECT_TRUE(at::equal(x, at::full({numel}, n * (n - 1) + n * color, at::kFloat)));
    }
    comm.barrier().wait();
  });
}

TEST_P(TransferTest, ANegativeColorJoinsNone) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    auto rest = comm.split(comm.rank() == 0 ? -1 : 7);
    EXPECT_EQ(rest == nullptr, comm.rank() == 0);
    if (rest) {
      EXPECT_EQ(rest->size(), comm.size() - 1);
      EXPECT_EQ(rest->rank(), comm.rank() - 1);
      rest->barrier().wait();
    }
    comm.barrier().wait();
  });
}

TEST_P(TransferTest, SplitGroupsCanBeSplitAndMadeAgain) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      auto all = comm.split(i);
      auto alone = all->split(all->rank());
      EXPECT_EQ(alone->size(), 1);
      auto x = at::ones({3});
      alone->all_reduce(x, ReduceOp::kSum).wait();
      all->all_reduce(x, ReduceOp::kSum).wait();
      EXPECT_EQ(x[0].item<float>(), comm.size());
    }
  });
}

TEST_P(TransferTest, ExchangePassesTensorsRoundARing) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size(), next = (comm.rank() + 1) % n,
              previous = (comm.rank() + n - 1) % n;
    for (const auto dtype : test::kDtypes) {
      for (const int64_t numel : {0, 1, 3000, 150'001}) {
        for (const auto where : test::kEverywhere) {
          const auto mine = in_memory(comm, input(comm.rank(), numel, dtype), where);
          auto theirs = at::empty({numel}, mine.options());
          const Transfer send[] = {{next, mine}}, receive[] = {{previous, theirs}};
          comm.exchange(send, receive).wait();
          EXPECT_TRUE(at::equal(theirs, input(previous, numel, dtype)))
              << dtype << numel;
        }
      }
    }
  });
}

TEST_P(TransferTest, ExchangeFillsAllocatedMemory) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size(), next = (comm.rank() + 1) % n,
              previous = (comm.rank() + n - 1) % n;
    auto theirs = comm.allocate({70'001}, at::kFloat);
    const Transfer send[] = {{next, input(comm.rank(), 70'001, at::kFloat)}};
    const Transfer receive[] = {{previous, theirs}};
    comm.exchange(send, receive).wait();
    EXPECT_TRUE(at::equal(theirs, input(previous, 70'001, at::kFloat)));
  });
}

TEST_P(TransferTest, ExchangeKeepsOrderBetweenTwoRanks) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    constexpr int kTransfers = 30;
    const int n = comm.size();
    std::vector<Transfer> sends, receives;
    for (int i = 0; i < kTransfers; ++i) {
      const int64_t numel = i % 3 == 2 ? 50'000 : i;
      for (int r = 0; r < n; ++r) {
        sends.push_back(
            {r, at::full({numel, 2}, 100 * comm.rank() + i, at::kFloat).t()});
        receives.push_back({r, at::empty({numel, 2}).t()});
      }
    }
    comm.exchange(sends, receives).wait();
    for (int i = 0; i < kTransfers; ++i) {
      for (int r = 0; r < n; ++r) {
        const auto& got = receives[i * n + r].tensor;
        EXPECT_TRUE(at::equal(got, at::full_like(got, 100 * r + i)));
      }
    }
  });
}

// Rank 1 receives only after rank 0 has found its send unfinished.
TEST_P(TwoRanksTest, ASendDoesNotFinishBeforeItsReceive) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store& store) {
    for (const int64_t numel : {1, 100'000}) {
      const auto key = "polled/" + std::to_string(numel);
      if (comm.rank() == 0) {
        const Transfer send[] = {{1, input(0, numel, at::kFloat)}};
        auto work = comm.exchange(send, {});
        for (int i = 0; i < 100; ++i) EXPECT_FALSE(work.poll());
        store.set(key, "yes");
        work.wait();
      } else if (comm.rank() == 1) {
        store.get(key, 20s);
        auto got = at::empty({numel});
        const Transfer receive[] = {{0, got}};
        comm.exchange({}, receive).wait();
        EXPECT_TRUE(at::equal(got, input(0, numel, at::kFloat)));
      }
    }
  });
}

// What is done stays done: whoever waits for it later hears of no failure.
TEST_P(TwoRanksTest, WorkThatIsDoneOutlivesItsGroup) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store& store) {
    if (comm.rank() > 1) {
      auto sum = at::ones({100});
      comm.all_reduce(sum, ReduceOp::kSum).wait();
      return;
    }
    const int other = 1 - comm.rank();
    auto got = at::zeros({2, 100});
    const Transfer send[] = {{other, input(comm.rank(), 100, at::kFloat)}};
    const Transfer to_first[] = {{other, got[0]}}, to_second[] = {{other, got[1]}};
    auto sum = at::ones({100});
    auto reduced = comm.all_reduce(sum, ReduceOp::kSum);
    auto first = comm.exchange(send, to_first);
    comm.exchange(send, to_second).wait();  // so the one before it is done, too
    while (!reduced.poll()) std::this_thread::yield();
    store.add("here", 1);
    while (store.add("here", 0) < 2) std::this_thread::yield();
    comm.abort("for the test");
    first.wait();
    reduced.wait();
    EXPECT_TRUE(at::equal(got[0], input(other, 100, at::kFloat)));
    EXPECT_TRUE(at::equal(sum, at::full({100}, comm.size())));
  });
}

// The collective moves on while the exchange waits, and the other way round.
TEST_P(TransferTest, ExchangesAndCollectivesDoNotBlockEachOther) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size(), next = (comm.rank() + 1) % n,
              previous = (comm.rank() + n - 1) % n;
    auto x = at::ones({200'000});
    auto theirs = at::empty({100'000});
    const Transfer send[] = {{next, input(comm.rank(), 100'000, at::kFloat)}};
    const Transfer receive[] = {{previous, theirs}};
    auto reduce = comm.all_reduce(x, ReduceOp::kSum);
    auto exchange = comm.exchange(send, receive);
    if (comm.rank() % 2) {
      reduce.wait();
      exchange.wait();
    } else {
      exchange.wait();
      reduce.wait();
    }
    EXPECT_EQ(x.max().item<float>(), n);
    EXPECT_TRUE(at::equal(theirs, input(previous, 100'000, at::kFloat)));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, TransferTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);
INSTANTIATE_TEST_SUITE_P(EveryWorld, TwoRanksTest,
                         testing::ValuesIn(test::every_world({2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
