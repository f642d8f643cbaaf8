// SPDX-License-Identifier: Apache-2.0
// Every backend passes this suite at every world size, or it is not a backend.
#include "cohort/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::in_memory;
using test::input;
using test::reduced;
using test::Where;

class CommunicatorTest : public testing::TestWithParam<test::World> {};

TEST_P(CommunicatorTest, KnowsItsPlace) {
  test::run_ranks(GetParam(), [&](Communicator& comm, Store& store) {
    EXPECT_EQ(comm.backend(), GetParam().backend);
    EXPECT_EQ(comm.size(), GetParam().size);
    EXPECT_EQ(comm.generation(), 0);
    store.set("rank/" + std::to_string(comm.rank()), "here");
    comm.barrier().wait();
    for (int r = 0; r < comm.size(); ++r) {
      EXPECT_TRUE(store.has("rank/" + std::to_string(r)));
    }
  });
}

TEST_P(CommunicatorTest, AllReduceReducesEveryTypeByEveryOperation) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const auto dtype : test::kDtypes) {
      for (const auto op :
           {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
        if (op == ReduceOp::kMean && !at::isFloatingType(dtype)) continue;
        for (const int64_t numel : {0, 1, 17, 9001}) {
          for (const auto where : {Where::kOrdinary, Where::kAllocated}) {
            auto x = in_memory(comm, input(comm.rank(), numel, dtype), where);
            comm.all_reduce(x, op).wait();
            EXPECT_TRUE(at::equal(x, reduced(comm.size(), numel, dtype, op)))
                << dtype << " op " << static_cast<int>(op) << " numel " << numel;
          }
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, AllReduceIsRightAtEveryBorder) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : test::kBorders) {
      const auto expected = reduced(comm.size(), numel, at::kFloat, ReduceOp::kSum);
      for (const auto where : test::kEverywhere) {
        auto x = in_memory(comm, input(comm.rank(), numel, at::kFloat), where);
        comm.all_reduce(x, ReduceOp::kSum).wait();
        EXPECT_TRUE(at::equal(x, expected))
            << numel << " in " << static_cast<int>(where);
      }
    }
  });
}

TEST_P(CommunicatorTest, ResultsAreTheSameBitsOnEveryRank) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t numel : {1000, 5000, 100'001}) {
        for (const auto where : test::kEverywhere) {
          at::manual_seed(comm.rank());
          auto x = in_memory(comm, at::randn({numel}).to(dtype), where);
          comm.all_reduce(x, ReduceOp::kMean).wait();
          auto all = at::empty({comm.size(), numel}, x.options());
          comm.all_gather(all, x).wait();
          for (int r = 0; r < comm.size(); ++r) EXPECT_TRUE(at::equal(all[r], x));
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterLeavesEachRankItsPart) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const auto dtype : test::kDtypes) {
      for (const int64_t part : {0, 1, 513, 70'001}) {
        for (const auto where : test::kEverywhere) {
          const auto in = in_memory(comm, input(comm.rank(), part * n, dtype), where);
          auto out = at::empty({part}, in.options());
          comm.reduce_scatter(out, in, ReduceOp::kSum).wait();
          const auto all = reduced(n, part * n, dtype, ReduceOp::kSum);
          EXPECT_TRUE(at::equal(out, all.narrow(0, comm.rank() * part, part)))
              << dtype << " " << part;
          EXPECT_TRUE(at::equal(in, input(comm.rank(), part * n, dtype)));
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, AllGatherKeepsRankOrder) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const auto dtype : test::kDtypes) {
      for (const int64_t numel : {0, 1, 1025, 140'001}) {
        for (const auto where : test::kEverywhere) {
          const auto shard = in_memory(comm, input(comm.rank(), numel, dtype), where);
          auto out = at::empty({comm.size(), numel}, shard.options());
          comm.all_gather(out, shard).wait();
          for (int r = 0; r < comm.size(); ++r) {
            EXPECT_TRUE(at::equal(out[r], input(r, numel, dtype))) << dtype << numel;
          }
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, AllGatherMayWorkInPlace) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : {100, 50'000}) {
      for (const auto where : {Where::kOrdinary, Where::kAllocated}) {
        auto out = in_memory(comm, at::zeros({comm.size(), numel}), where);
        auto shard = out[comm.rank()];
        shard.copy_(input(comm.rank(), numel, at::kFloat));
        comm.all_gather(out, shard).wait();
        for (int r = 0; r < comm.size(); ++r) {
          EXPECT_TRUE(at::equal(out[r], input(r, numel, at::kFloat)));
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, BroadcastComesFromAnyRoot) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      for (const auto dtype : test::kDtypes) {
        for (const int64_t numel : {0, 1, 2049, 150'001}) {
          for (const auto where : {Where::kOrdinary, Where::kMixed}) {
            auto x = in_memory(comm, input(comm.rank(), numel, dtype), where);
            comm.broadcast(x, root).wait();
            EXPECT_TRUE(at::equal(x, input(root, numel, dtype))) << dtype << numel;
          }
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, AllToAllGivesEachRankItsPart) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const auto dtype : {at::kFloat, at::kByte, at::kBFloat16}) {
      for (const int64_t part : {0, 1, 300, 60'001}) {
        for (const auto where : test::kEverywhere) {
          const auto in = in_memory(comm, input(comm.rank(), part * n, dtype), where);
          auto out = at::empty({n, part}, in.options());
          comm.all_to_all(out, in).wait();
          for (int r = 0; r < n; ++r) {
            const auto theirs = input(r, part * n, dtype);
            EXPECT_TRUE(at::equal(out[r], theirs.narrow(0, comm.rank() * part, part)));
          }
        }
      }
    }
  });
}

// Rank i sends (i + 2 j) % 3 * scale rows to rank j: some of them none.
TEST_P(CommunicatorTest, AllToAllTakesUnevenRows) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size(), me = comm.rank();
    for (const int64_t scale : {1, 7, 9000}) {
      const auto rows = [&](int from, int to) { return (from + 2 * to) % 3 * scale; };
      std::vector<int64_t> in_rows, out_rows;
      int64_t sent = 0, received = 0;
      for (int r = 0; r < n; ++r) {
        sent += in_rows.emplace_back(rows(me, r));
        received += out_rows.emplace_back(rows(r, me));
      }
      for (const auto where : test::kEverywhere) {
        const auto in = in_memory(comm, at::full({sent, 4}, me, at::kFloat), where);
        auto out = at::full({received, 4}, -1, at::kFloat);
        comm.all_to_all(out, in, out_rows, in_rows).wait();
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          const auto part = out.narrow(0, at, out_rows[r]);
          EXPECT_TRUE(at::equal(part, at::full_like(part, r)))
              << scale << " from " << r;
          at += out_rows[r];
        }
      }
    }
  });
}

TEST_P(CommunicatorTest, TensorsNeedNotBeContiguous) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const int64_t side : {6 * n, 120 * n}) {
      const auto values = [&](int r) {
        return input(r, side * side, at::kFloat).view({side, side});
      };
      auto x = values(comm.rank()).t();
      ASSERT_TRUE(n == 1 || !x.is_contiguous());
      comm.all_reduce(x, ReduceOp::kSum).wait();
      const auto sum = reduced(n, side * side, at::kFloat, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(x, sum.view({side, side}).t()));

      auto gathered = at::empty({side, n * side}).t();
      comm.all_gather(gathered, values(comm.rank()).t()).wait();
      for (int r = 0; r < n; ++r) {
        EXPECT_TRUE(at::equal(gathered.narrow(0, r * side, side), values(r).t()));
      }

      auto received = values(comm.rank()).t();
      comm.broadcast(received, n - 1).wait();
      EXPECT_TRUE(at::equal(received, values(n - 1).t()));

      auto part = at::empty({side, side / n}).t();
      comm.reduce_scatter(part, values(comm.rank()).t(), ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(
          part,
          sum.view({side, side}).t().narrow(0, comm.rank() * side / n, side / n)));
    }
  });
}

TEST_P(CommunicatorTest, SeveralMayBeInFlight) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    constexpr int kCalls = 50;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      const int64_t numel = i % 5 == 4 ? 30'000 + i : 10 + i;
      const auto where = i % 2 ? Where::kAllocated : Where::kOrdinary;
      tensors.push_back(in_memory(comm, input(comm.rank(), numel, at::kFloat), where));
      works.push_back(comm.all_reduce(tensors.back(), ReduceOp::kSum));
    }
    while (!works.empty()) {  // the last first: it may need all others
      works.back().wait();
      works.pop_back();
    }
    for (const auto& x : tensors) {
      EXPECT_TRUE(
          at::equal(x, reduced(comm.size(), x.numel(), at::kFloat, ReduceOp::kSum)));
    }
  });
}

TEST_P(CommunicatorTest, PollingAloneFinishesAnOperation) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : {10, 200'000}) {
      auto x = input(comm.rank(), numel, at::kFloat);
      auto work = comm.all_reduce(x, ReduceOp::kSum);
      while (!work.poll()) {
      }
      work.wait();
      EXPECT_TRUE(
          at::equal(x, reduced(comm.size(), numel, at::kFloat, ReduceOp::kSum)));
    }
  });
}

TEST_P(CommunicatorTest, AllocatedMemoryIsZeroedAndOutlivesTheGroup) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Tensor kept;
    {
      const auto half = comm.split(comm.rank() % 2);
      for (int i = 0; i < 3; ++i) {
        kept = half->allocate({300, 17}, at::kFloat);
        EXPECT_EQ(kept.sizes(), (std::vector<int64_t>{300, 17}));
        EXPECT_EQ(kept.abs().sum().item<float>(), 0);
        kept.fill_(1);
      }
      EXPECT_EQ(half->allocate({0, 3}, at::kLong).numel(), 0);
      half->barrier().wait();
    }
    EXPECT_EQ(kept.sum().item<float>(), 300 * 17);
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, CommunicatorTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
