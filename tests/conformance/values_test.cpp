// SPDX-License-Identifier: Apache-2.0
// What comes out of odd values and odd tensors: the same with every backend.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/communicator.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::in_memory;
using test::input;
using test::reduced;

const std::vector<at::ScalarType> kFloatingTypes = {at::kDouble, at::kFloat, at::kHalf,
                                                    at::kBFloat16};
const std::vector<int64_t> kFewAndMany = {5, 9001};

class ValuesTest : public testing::TestWithParam<test::World> {};

TEST_P(ValuesTest, ANaNWinsEveryReduction) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto dtype : kFloatingTypes) {
      for (const int64_t numel : kFewAndMany) {
        for (const auto op :
             {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
          for (const double sign : {1.0, -1.0}) {
            for (int place = 0; place < comm.size(); ++place) {
              const double mine =
                  comm.rank() == place ? std::copysign(nan, sign) : comm.rank() - 1.0;
              auto x = at::full({numel}, mine, dtype);
              comm.all_reduce(x, op).wait();
              EXPECT_TRUE(x.isnan().all().item<bool>())
                  << dtype << " op " << static_cast<int>(op) << " at " << place;
              const auto in = at::full({comm.size() * numel}, mine, dtype);
              auto out = at::zeros({numel}, dtype);
              comm.reduce_scatter(out, in, op).wait();
              EXPECT_TRUE(out.isnan().all().item<bool>())
                  << dtype << " op " << static_cast<int>(op) << " at " << place;
            }
          }
        }
      }
    }
  });
}

TEST_P(ValuesTest, TheLargestAndTheSmallestMayBeInfinite) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const double inf = std::numeric_limits<double>::infinity();
    const bool first = comm.rank() == 0;
    for (const auto dtype : kFloatingTypes) {
      for (const auto op : {ReduceOp::kMax, ReduceOp::kMin}) {
        const double beyond = op == ReduceOp::kMax ? inf : -inf;
        auto x = at::full({100}, first ? beyond : -beyond, dtype);
        comm.all_reduce(x, op).wait();
        EXPECT_TRUE(at::equal(x, at::full({100}, beyond, dtype)));
        auto y = at::full({100}, first ? -2.5 : -beyond, dtype);
        comm.all_reduce(y, op).wait();
        EXPECT_TRUE(at::equal(y, at::full({100}, -2.5, dtype)));
      }
    }
  });
}

// 40,000 is a float16, twice that is not.
TEST_P(ValuesTest, AMeanOfHalfTypesDoesNotOverflow) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t numel : kFewAndMany) {
      const auto expected = at::full({numel}, 40'000, at::kHalf);
      auto x = expected.clone();
      comm.all_reduce(x, ReduceOp::kMean).wait();
      EXPECT_TRUE(at::equal(x, expected));
      auto out = at::zeros({numel}, at::kHalf);
      comm.reduce_scatter(out, expected.repeat({comm.size()}), ReduceOp::kMean).wait();
      EXPECT_TRUE(at::equal(out, expected));
    }
  });
}

// 2,048 + 1 is no float16: added one by one, the ones would be lost.
TEST_P(ValuesTest, HalfTypesAreRoundedOnce) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const auto& [dtype, big] :
         {std::pair(at::kHalf, 2048.0), std::pair(at::kBFloat16, 256.0)}) {
      for (const int64_t numel : kFewAndMany) {
        const double sum = big + (n - 1);
        const auto mine = at::full({numel}, comm.rank() == 0 ? big : 1.0, dtype);
        auto x = mine.clone();
        comm.all_reduce(x, ReduceOp::kSum).wait();
        EXPECT_TRUE(at::equal(x, at::full({numel}, sum, at::kDouble).to(dtype)));
        auto y = mine.clone();
        comm.all_reduce(y, ReduceOp::kMean).wait();
        const auto mean = at::full({numel}, sum, at::kFloat) / n;
        EXPECT_TRUE(at::equal(y, mean.to(dtype)));
        auto out = at::zeros({numel}, dtype);
        comm.reduce_scatter(out, mine.repeat({n}), ReduceOp::kSum).wait();
        EXPECT_TRUE(at::equal(out, at::full({numel}, sum, at::kDouble).to(dtype)));
      }
    }
  });
}

TEST_P(ValuesTest, IntegersWrapAround) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    for (const auto& [dtype, most] :
         {std::pair(at::kByte, int64_t{255}), std::pair(at::kInt, int64_t{2147483647}),
          std::pair(at::kLong, std::numeric_limits<int64_t>::max())}) {
      auto x = at::full({100}, most, dtype);
      comm.all_reduce(x, ReduceOp::kSum).wait();
      auto sum = at::full({100}, most, dtype);
      for (int r = 1; r < comm.size(); ++r) sum.add_(at::full({100}, most, dtype));
      EXPECT_TRUE(at::equal(x, sum)) << dtype;
    }
  });
}

// A parameter is a leaf that wants a gradient, and may be a view of another layout.
TEST_P(ValuesTest, LeavesThatWantAGradientAreWrittenInPlace) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const int64_t side : {6 * n, 120 * n}) {
      for (const bool turned : {false, true}) {
        const auto leaf = [&](int rank, int64_t rows, int64_t columns) {
          auto x = input(rank, rows * columns, at::kFloat).view({columns, rows}).t();
          x = turned ? x : x.contiguous();
          return x.detach().requires_grad_(true);
        };
        const auto same = [&](const Tensor& got, const Tensor& expected) {
          EXPECT_TRUE(at::equal(got.detach(), expected.detach())) << side << turned;
          EXPECT_TRUE(got.is_leaf() && got.requires_grad());
        };
        auto x = leaf(comm.rank(), side, side);
        comm.broadcast(x, n - 1).wait();
        same(x, leaf(n - 1, side, side));

        auto y = leaf(comm.rank(), side, side);
        comm.all_reduce(y, ReduceOp::kSum).wait();
        const auto sum =
            reduced(n, side * side, at::kFloat, ReduceOp::kSum).view({side, side}).t();
        same(y, sum);

        auto gathered = leaf(0, n * side, side);
        comm.all_gather(gathered, leaf(comm.rank(), side, side)).wait();
        for (int r = 0; r < n; ++r)
          EXPECT_TRUE(at::equal(gathered.detach().narrow(0, r * side, side),
                                leaf(r, side, side).detach()));

        auto part = leaf(0, side / n, side);
        comm.reduce_scatter(part, leaf(comm.rank(), side, side), ReduceOp::kSum).wait();
        same(part, sum.narrow(0, comm.rank() * side / n, side / n));

        auto swapped = leaf(0, n * side, side);
        const auto given = leaf(comm.rank(), n * side, side);
        comm.all_to_all(swapped, given).wait();
        for (int r = 0; r < n; ++r)
          EXPECT_TRUE(at::equal(
              swapped.detach().narrow(0, r * side, side),
              leaf(r, n * side, side).detach().narrow(0, comm.rank() * side, side)));

        auto received = leaf(n, side, side);
        const Transfer send[] = {
            {(comm.rank() + 1) % n, leaf(comm.rank(), side, side)}};
        const Transfer receive[] = {{(comm.rank() + n - 1) % n, received}};
        comm.exchange(send, receive).wait();
        same(received, leaf((comm.rank() + n - 1) % n, side, side));
      }
    }
  });
}

TEST_P(ValuesTest, ReduceScatterMayWorkInPlace) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    for (const int64_t part : {100, 50'001}) {
      for (const auto where : test::kEverywhere) {
        auto in = in_memory(comm, input(comm.rank(), part * n, at::kFloat), where);
        auto out = in.narrow(0, comm.rank() * part, part);
        comm.reduce_scatter(out, in, ReduceOp::kSum).wait();
        const auto all = reduced(n, part * n, at::kFloat, ReduceOp::kSum);
        EXPECT_TRUE(at::equal(out, all.narrow(0, comm.rank() * part, part)));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ValuesTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
