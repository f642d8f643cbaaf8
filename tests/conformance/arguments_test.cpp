// SPDX-License-Identifier: Apache-2.0
// What no call may be given: every backend refuses it alike, before anything moves.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cohort/communicator.h"
#include "cohort/core/error.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ArgumentsTest : public testing::TestWithParam<test::World> {};

// The message of the ConfigError that `call` must throw.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return text("not a ConfigError: ", error.what());
  }
  return "not refused";
}

// Makes refused calls on one rank only, and finds the group as it was.
class Refuser {
 public:
  explicit Refuser(Communicator& comm) : comm_(comm) {}

  // `said` is part of the message: what was given.
  void refuses(const char* op, const char* said,
               const std::function<void(Communicator&)>& call) {
    if (comm_.rank() == comm_.size() - 1) {
      EXPECT_THAT(refusal([&] { call(comm_); }),
                  AllOf(StartsWith(text("[comm.", comm_.backend(), "] ", op, ": ")),
                        HasSubstr(said), HasSubstr(text(" (rank ", comm_.rank(), ")")),
                        Not(HasSubstr("\n"))))
          << op << " " << said;
    }
    auto x = test::input(comm_.rank(), 10, at::kFloat);
    comm_.all_reduce(x, ReduceOp::kSum).wait();
    EXPECT_TRUE(
        at::equal(x, test::reduced(comm_.size(), 10, at::kFloat, ReduceOp::kSum)))
        << "after " << op << " " << said;
  }

 private:
  Communicator& comm_;
};

// Calls `each` with every call that reads or writes one given tensor.
void for_every_tensor(
    const std::function<void(const char* op,
                             std::function<void(Communicator&, Tensor)>)>& each) {
  each("all_reduce", [](auto& c, Tensor x) { c.all_reduce(x, ReduceOp::kSum).wait(); });
  each("reduce_scatter", [](auto& c, Tensor x) {
    auto out = at::zeros({1});
    c.reduce_scatter(out, x, ReduceOp::kSum).wait();
  });
  each("reduce_scatter", [](auto& c, Tensor x) {
    c.reduce_scatter(x, at::zeros({c.size()}), ReduceOp::kSum).wait();
  });
  each("all_gather", [](auto& c, Tensor x) {
    auto out = at::zeros({c.size()});
    c.all_gather(out, x).wait();
  });
  each("all_gather", [](auto& c, Tensor x) { c.all_gather(x, at::zeros({1})).wait(); });
  each("broadcast", [](auto& c, Tensor x) { c.broadcast(x, 0).wait(); });
  each("all_to_all", [](auto& c, Tensor x) {
    auto out = at::zeros({c.size()});
    c.all_to_all(out, x).wait();
  });
  each("all_to_all",
       [](auto& c, Tensor x) { c.all_to_all(x, at::zeros({c.size()})).wait(); });
  each("exchange", [](auto& c, Tensor x) {
    const Transfer send[] = {{0, x}};
    c.exchange(send, {}).wait();
  });
  each("exchange", [](auto& c, Tensor x) {
    const Transfer receive[] = {{0, x}};
    c.exchange({}, receive).wait();
  });
}

TEST_P(ArgumentsTest, TensorsThatCannotBeCarriedAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const int64_t n = comm.size();
    const auto sparse = at::eye(n).to_sparse();
    for_every_tensor([&](const char* op, const auto& call) {
      group.refuses(op, "undefined", [&](auto& c) { call(c, Tensor()); });
      group.refuses(op, "meta", [&](auto& c) {
        call(c, at::zeros({n}, at::TensorOptions().device(at::kMeta)));
      });
      group.refuses(op, "Sparse", [&](auto& c) { call(c, sparse); });
      for (const auto dtype : {at::kBool, at::kChar, at::kShort, at::kComplexFloat})
        group.refuses(op, c10::toString(dtype),
                      [&](auto& c) { call(c, at::zeros({n}, dtype)); });
    });
  });
}

TEST_P(ArgumentsTest, WrittenTensorsMustHaveAPlaceForEachElement) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const int64_t n = comm.size();
    auto wide = at::zeros({1}).expand({4 * n});
    const auto parts = at::zeros({4 * n}), more = at::zeros({4 * n * n});
    const char* said = "several elements in one place";
    group.refuses("all_reduce", said,
                  [&](auto& c) { (void)c.all_reduce(wide, ReduceOp::kSum); });
    group.refuses("reduce_scatter", said,
                  [&](auto& c) { (void)c.reduce_scatter(wide, more, ReduceOp::kSum); });
    group.refuses("all_gather", said,
                  [&](auto& c) { (void)c.all_gather(wide, at::zeros({4})); });
    group.refuses("broadcast", said, [&](auto& c) { (void)c.broadcast(wide, 0); });
    group.refuses("all_to_all", said,
                  [&](auto& c) { (void)c.all_to_all(wide, parts); });
    group.refuses("exchange", said, [&](auto& c) {
      const Transfer receive[] = {{0, wide}};
      (void)c.exchange({}, receive);
    });
  });
}

TEST_P(ArgumentsTest, TensorsThatDoNotFitOneAnotherAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const int64_t n = comm.size();
    auto x = at::ones({4 * n}), part = at::ones({4}), odd = at::ones({4 * n + 1});
    auto longs = at::ones({4 * n}, at::kLong), long_part = at::ones({4}, at::kLong);
    group.refuses("reduce_scatter", "elements",
                  [&](auto& c) { (void)c.reduce_scatter(part, odd, ReduceOp::kSum); });
    group.refuses("reduce_scatter", "elements",
                  [&](auto& c) { (void)c.reduce_scatter(odd, x, ReduceOp::kSum); });
    group.refuses("reduce_scatter", "int64", [&](auto& c) {
      (void)c.reduce_scatter(long_part, x, ReduceOp::kSum);
    });
    group.refuses("all_gather", "elements",
                  [&](auto& c) { (void)c.all_gather(x, odd); });
    group.refuses("all_gather", "int64",
                  [&](auto& c) { (void)c.all_gather(longs, part); });
    group.refuses("all_to_all", "elements",
                  [&](auto& c) { (void)c.all_to_all(odd, x); });
    group.refuses("all_to_all", "int64",
                  [&](auto& c) { (void)c.all_to_all(longs, x); });
    auto twice = at::ones({8 * n});
    group.refuses("all_to_all", "elements",
                  [&](auto& c) { (void)c.all_to_all(twice, x); });
  });
}

TEST_P(ArgumentsTest, ReductionsThatAreNoneAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    for (const auto dtype : {at::kLong, at::kInt, at::kByte}) {
      auto x = at::ones({comm.size()}, dtype), part = at::ones({1}, dtype);
      group.refuses("all_reduce", "mean of",
                    [&](auto& c) { (void)c.all_reduce(x, ReduceOp::kMean); });
      group.refuses("reduce_scatter", "mean of",
                    [&](auto& c) { (void)c.reduce_scatter(part, x, ReduceOp::kMean); });
    }
    auto x = at::ones({comm.size()}), part = at::ones({1});
    const auto none = static_cast<ReduceOp>(7);
    group.refuses("all_reduce", "reduction 7",
                  [&](auto& c) { (void)c.all_reduce(x, none); });
    group.refuses("reduce_scatter", "reduction 7",
                  [&](auto& c) { (void)c.reduce_scatter(part, x, none); });
  });
}

TEST_P(ArgumentsTest, RanksThatAreNoneAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    auto x = at::ones({4});
    for (const int nobody : {-1, comm.size(), std::numeric_limits<int>::max(),
                             std::numeric_limits<int>::min()}) {
      const auto said = text(" ", nobody, "; legal: 0 to ", comm.size() - 1);
      group.refuses("broadcast", ("root" + said).c_str(),
                    [&](auto& c) { (void)c.broadcast(x, nobody); });
      const Transfer transfers[] = {{nobody, x}};
      group.refuses("exchange", ("peer" + said).c_str(),
                    [&](auto& c) { (void)c.exchange(transfers, {}); });
      group.refuses("exchange", ("peer" + said).c_str(),
                    [&](auto& c) { (void)c.exchange({}, transfers); });
    }
  });
}

TEST_P(ArgumentsTest, RowsThatCannotBeAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const auto n = static_cast<size_t>(comm.size());
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const auto in = at::ones({3 * comm.size(), 2});
    auto out = at::ones({3 * comm.size(), 2});
    const std::vector<int64_t> good(n, 3);
    std::vector<std::vector<int64_t>> wrong = {std::vector<int64_t>(n, 4),
                                               std::vector<int64_t>(n, 0),
                                               std::vector<int64_t>(n + 1, 3)};
    wrong.push_back(good);
    wrong.back()[0] = -3;  // negative
    wrong.push_back(good);
    wrong.back().push_back(0);  // one too many
    if (n > 1) {
      wrong.push_back(std::vector<int64_t>(n - 1, 3));
      wrong.push_back(good);  // right in all
      wrong.back()[0] += 9;
      wrong.back()[1] -= 9;
      wrong.push_back(std::vector<int64_t>(n, 0));  // right in all, modulo 2^64
      wrong.back()[0] = kMost;
      wrong.back()[1] = kMost;
    }
    for (const auto& rows : wrong) {
      group.refuses("all_to_all", "in_rows",
                    [&](auto& c) { (void)c.all_to_all(out, in, good, rows); });
      group.refuses("all_to_all", "out_rows",
                    [&](auto& c) { (void)c.all_to_all(out, in, rows, good); });
    }
    // What it sends to itself is not what it takes from itself.
    if (n > 1) {
      auto other = good;
      other[n - 1] = 2;
      other[0] = 4;
      group.refuses("all_to_all", "itself",
                    [&](auto& c) { (void)c.all_to_all(out, in, other, good); });
    }
  });
}

TEST_P(ArgumentsTest, OutputsThatOverlapInputsAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const int64_t n = comm.size();
    auto memory = at::ones({4 * n + 4});
    auto x = memory.narrow(0, 0, 4 * n), shifted = memory.narrow(0, 2, 4 * n);
    auto part = memory.narrow(0, 4 * comm.rank() + 1, 4);
    group.refuses("all_to_all", "overlap", [&](auto& c) { (void)c.all_to_all(x, x); });
    group.refuses("all_to_all", "overlap",
                  [&](auto& c) { (void)c.all_to_all(x, shifted); });
    group.refuses("all_gather", "overlap",
                  [&](auto& c) { (void)c.all_gather(x, part); });
    group.refuses("reduce_scatter", "overlap",
                  [&](auto& c) { (void)c.reduce_scatter(part, x, ReduceOp::kSum); });
  });
}

TEST_P(ArgumentsTest, WhatARankSendsItselfItMustTake) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    const auto x = at::ones({4});
    const Transfer one[] = {{comm.rank(), x}},
                   two[] = {{comm.rank(), x}, {comm.rank(), x}};
    const Transfer longer[] = {{comm.rank(), at::ones({5})}};
    const Transfer ints[] = {{comm.rank(), at::ones({4}, at::kInt)}};
    group.refuses("exchange", "itself", [&](auto& c) { (void)c.exchange(one, {}); });
    group.refuses("exchange", "itself", [&](auto& c) { (void)c.exchange({}, one); });
    group.refuses("exchange", "itself", [&](auto& c) { (void)c.exchange(two, one); });
    group.refuses("exchange", "itself",
                  [&](auto& c) { (void)c.exchange(one, longer); });
    group.refuses("exchange", "itself", [&](auto& c) { (void)c.exchange(ints, one); });
  });
}

TEST_P(ArgumentsTest, MemoryThatCannotBeIsRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    Refuser group(comm);
    group.refuses("allocate", "-1",
                  [](auto& c) { (void)c.allocate({-1}, at::kFloat); });
    group.refuses("allocate", "-2", [](auto& c) {
      (void)c.allocate({-2, -3}, at::kFloat);
    });
    group.refuses("allocate", "elements", [](auto& c) {
      (void)c.allocate({int64_t{1} << 40, int64_t{1} << 40}, at::kFloat);
    });
    group.refuses("allocate", "Undefined",
                  [](auto& c) { (void)c.allocate({4}, at::ScalarType::Undefined); });
  });
}

// Nothing to send, nobody to meet: that is no mistake.
TEST_P(ArgumentsTest, EmptyListsAreFine) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    comm.exchange({}, {}).wait();
    auto nothing = at::empty({0});
    const std::vector<int64_t> rows(static_cast<size_t>(comm.size()), 0);
    comm.all_to_all(nothing, at::empty({0}), rows, rows).wait();
    auto scalar = test::input(comm.rank(), 1, at::kFloat)[0];
    comm.all_reduce(scalar, ReduceOp::kSum).wait();
    EXPECT_TRUE(at::equal(
        scalar, test::reduced(comm.size(), 1, at::kFloat, ReduceOp::kSum)[0]));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ArgumentsTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);

}  // namespace
}  // namespace cohort
