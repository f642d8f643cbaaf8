// SPDX-License-Identifier: Apache-2.0
// What a group does when its ranks disagree, are late, or die.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "cohort/communicator.h"
#include "cohort/core/error.h"
#include "conformance/inputs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::comm_error;
using testing::AllOf;
using testing::HasSubstr;

// Every backend.
class FailureTest : public testing::TestWithParam<test::World> {};

TEST_P(FailureTest, AbortReachesAllWithItsReason) {
  test::run_ranks(GetParam(), [](Communicator& comm, Store& store) {
    const int last = comm.size() - 1;
    auto x = at::ones({100});
    store.set(text("connected/", comm.rank()), "");
    if (comm.rank() == last) {
      // A rank that is still connecting would hear of it there.
      for (int r = 0; r < last; ++r) store.get(text("connected/", r), 20s);
      comm.abort("out of luck");
    } else {
      const auto message =
          comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); });
      EXPECT_THAT(message, HasSubstr("out of luck"));
    }
    // Broken for good.
    EXPECT_THAT(comm_error([&] { comm.barrier().wait(); }), HasSubstr("out of luck"));
    store.add("done", 1);
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, FailureTest,
                         testing::ValuesIn(test::every_world({1, 2, 3, 5})),
                         test::world_name);

// Counts itself in only after it has given others time to be ready too early.
class LateStore : public Store {
 public:
  explicit LateStore(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  bool has(const std::string& key) override { return store_.has(key); }
  int64_t add(const std::string& key, int64_t amount) override {
    EXPECT_THROW(store_.get("ready", std::chrono::milliseconds(200)), CommError);
    counted_ = true;
    return store_.add(key, amount);
  }
  bool counted() const { return counted_; }

 private:
  Store& store_;
  bool counted_ = false;
};

// A backend of connections: others meet in their own memory.
class ConnectionsTest : public testing::TestWithParam<test::World> {};

// One that leaves at once would close connections which others are still making.
TEST_P(ConnectionsTest, NoRankIsReadyBeforeAllAreConnected) {
  const auto& world = GetParam();
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    LateStore late(store);
    const bool last = comm.rank() == comm.size() - 1;
    auto next = test::connect_again(world, comm.rank(), 1, last ? late : store);
    EXPECT_EQ(late.counted(), last);
    store.set("ready", "");
    next->barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, ConnectionsTest,
                         testing::ValuesIn(test::only("gloo",
                                                      test::every_world({1, 2, 3, 5}))),
                         test::world_name);

// Every backend but local, whose ranks have no way to find another generation.
class GenerationsTest : public testing::TestWithParam<test::World> {};

TEST_P(GenerationsTest, GenerationsDoNotMeet) {
  const auto& world = GetParam();
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    if (comm.rank() == 0) comm.abort("the first generation ends");
    auto next = test::connect_again(world, comm.rank(), 1, store);
    EXPECT_EQ(next->generation(), 1);
    auto x = at::ones({50'000});
    next->all_reduce(x, ReduceOp::kSum).wait();
    EXPECT_EQ(x[7].item<float>(), comm.size());
    EXPECT_THAT(comm_error([&] { comm.barrier().wait(); }),
                HasSubstr("first generation"));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, GenerationsTest,
                         testing::ValuesIn(test::but("local",
                                                     test::every_world({1, 2, 3, 5}))),
                         test::world_name);

// Backends that compare calls. Rank 1 calls `wrong`, all others `right`.
class CheckedTest : public testing::TestWithParam<test::World> {
 protected:
  using Function = std::function<void(Communicator&)>;

  static void expect_refused(const Function& right, const std::string& right_name,
                             const Function& wrong, const std::string& wrong_name) {
    test::run_ranks(GetParam(), [&](Communicator& comm) {
      comm.barrier().wait();
      const auto message =
          comm_error([&] { comm.rank() == 1 ? wrong(comm) : right(comm); });
      EXPECT_THAT(message, AllOf(HasSubstr("[comm." + GetParam().backend + "] rank "),
                                 HasSubstr("rank 1"), HasSubstr(right_name),
                                 HasSubstr(wrong_name)));
      if (comm.size() == 2) {
        EXPECT_THAT(message, HasSubstr("rank 0"));
      }
    });
  }
  static Function reduce(int64_t numel, at::ScalarType dtype, ReduceOp op) {
    return [=](Communicator& comm) {
      auto x = at::ones({numel}, dtype);
      auto work = comm.all_reduce(x, op);
      try {
        work.wait();
      } catch (const CommError&) {
        // Refused before data moved.
        EXPECT_TRUE(at::equal(x, at::ones({numel}, dtype)));
        throw;
      }
    };
  }
  static Function broadcast(int root) {
    return [=](Communicator& comm) {
      auto x = at::ones({1000});
      comm.broadcast(x, root).wait();
    };
  }
};

TEST_P(CheckedTest, AnotherCollectiveIsRefused) {
  expect_refused(reduce(1000, at::kFloat, ReduceOp::kSum),
                 "called all_reduce(float32, 1000, sum)", broadcast(0),
                 "called broadcast(float32, 1000, root 0)");
}

TEST_P(CheckedTest, AnotherDtypeIsRefused) {
  expect_refused(
      reduce(1000, at::kFloat, ReduceOp::kSum), "all_reduce(float32, 1000, sum)",
      reduce(1000, at::kInt, ReduceOp::kSum), "all_reduce(int32, 1000, sum)");
}

TEST_P(CheckedTest, AnotherNumberOfElementsIsRefused) {
  for (const int64_t numel : {1000, 100'000}) {
    const auto name = [](int64_t n) {
      return "all_reduce(float32, " + std::to_string(n) + ", sum) ";
    };
    expect_refused(reduce(numel, at::kFloat, ReduceOp::kSum), name(numel).substr(0, 25),
                   reduce(numel + 1, at::kFloat, ReduceOp::kSum), name(numel + 1));
  }
}

TEST_P(CheckedTest, AnotherReductionIsRefused) {
  expect_refused(reduce(10, at::kFloat, ReduceOp::kSum), "all_reduce(float32, 10, sum)",
                 reduce(10, at::kFloat, ReduceOp::kMax),
                 "all_reduce(float32, 10, max)");
}

TEST_P(CheckedTest, AnotherRootIsRefused) {
  expect_refused(broadcast(0), "broadcast(float32, 1000, root 0)", broadcast(1),
                 "broadcast(float32, 1000, root 1)");
}

TEST_P(CheckedTest, UnequalRowsAreRefused) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    std::vector<int64_t> rows(n, 3), out_rows(n, 3);
    if (comm.rank() == 1) out_rows[0] = 4;
    auto in = at::ones({3 * n}), out = at::ones({comm.rank() == 1 ? 3 * n + 1 : 3 * n});
    EXPECT_THAT(comm_error([&] { comm.all_to_all(out, in, out_rows, rows).wait(); }),
                HasSubstr("rank 1 expects 4 elements from rank 0, which sends 3"));
  });
}

TEST_P(CheckedTest, UnequalTransfersAreRefused) {
  for (const bool wrong_dtype : {true, false}) {
    test::run_ranks(GetParam(), [&](Communicator& comm) {
      const auto message = comm_error([&] {
        const Transfer send[] = {{1, at::ones({10})}};
        const Transfer receive[] = {
            {0, wrong_dtype ? at::ones({10}, at::kInt) : at::ones({11})}};
        if (comm.rank() == 0) comm.exchange(send, {}).wait();
        if (comm.rank() == 1) comm.exchange({}, receive).wait();
        comm.barrier().wait();
      });
      EXPECT_THAT(message, AllOf(HasSubstr("rank 1 receives exchange("),
                                 HasSubstr(wrong_dtype ? "int32, 10" : "float32, 11"),
                                 HasSubstr("rank 0 sends exchange(float32, 10)")));
    });
  }
}

// Only the sequence differs: rank 1 makes one call less.
TEST_P(CheckedTest, ARankThatSkipsACollectiveIsNamed) {
  auto world = GetParam();
  world.timeout = 300ms;
  test::run_ranks(world, [](Communicator& comm, Store& store) {
    auto x = at::ones({10});
    comm.all_reduce(x, ReduceOp::kSum).wait();
    if (comm.rank() != 1) {
      const auto message =
          comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); });
      EXPECT_THAT(message, AllOf(HasSubstr("rank 1 is missing"),
                                 HasSubstr("all_reduce(float32, 10, sum)"),
                                 HasSubstr(" s ago")));
    }
    store.add("named", 1);
    while (store.add("named", 0) < comm.size()) usleep(1000);
    // The late one learns that it was given up.
    EXPECT_THAT(comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); }),
                HasSubstr("rank 1 is missing"));
  });
}

TEST_P(CheckedTest, APollingRankAlsoNoticesAMissingOne) {
  auto world = GetParam();
  world.timeout = 300ms;
  test::run_ranks(world, [](Communicator& comm, Store& store) {
    if (comm.rank() == 0) {
      auto work = comm.barrier();
      while (!work.poll()) {
      }
      EXPECT_THAT(comm_error([&] { work.wait(); }), HasSubstr("rank 1 is missing"));
      store.set("named", "yes");
    } else {
      store.get("named", 20s);
    }
  });
}

TEST_P(CheckedTest, ARankThatLeavesIsNoticed) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    if (comm.rank() == 1) return;
    auto x = at::ones({100'000});
    EXPECT_THAT(
        comm_error([&] { comm.all_reduce(x, ReduceOp::kSum).wait(); }),
        AnyOf(HasSubstr("rank 1 has left the group"), HasSubstr("rank 1 (pid ")));
  });
}

TEST_P(CheckedTest, AnAbortOfTheWorldReachesItsParts) {
  test::run_ranks(GetParam(), [](Communicator& comm) {
    auto part = comm.split(0);
    if (comm.rank() == 1) {
      comm.abort("all over");
    } else {
      EXPECT_THAT(comm_error([&] { part->barrier().wait(); }), HasSubstr("all over"));
    }
    EXPECT_THAT(comm_error([&] { part->barrier().wait(); }), HasSubstr("all over"));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, CheckedTest,
                         testing::ValuesIn(test::every_checked_world({2, 3, 5})),
                         test::world_name);

// A rank that waits, and two that are slow elsewhere.
class SlowRankTest : public testing::TestWithParam<test::World> {};

TEST_P(SlowRankTest, ASlowRankThatMovesIsNotGivenUp) {
  auto world = GetParam();
  world.timeout = 400ms;
  test::run_ranks(world, [](Communicator& comm, Store& store) {
    auto pair = comm.split(comm.rank() < 2 ? 0 : 1);
    if (comm.rank() < 2) {
      // The others wait longer than the timeout, while ranks 0 and 1 work elsewhere.
      for (int i = 0; i < 8; ++i) {
        if (comm.rank() == 0) usleep(100'000);
        pair->barrier().wait();
      }
      store.set("slow work is done", "");
    }
    comm.barrier().wait();
    EXPECT_TRUE(store.has("slow work is done"));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, SlowRankTest,
                         testing::ValuesIn(test::every_checked_world({3, 5})),
                         test::world_name);

// Ranks that can be killed.
class KilledTest : public testing::TestWithParam<test::World> {};

TEST_P(KilledTest, AKilledRankIsNamedByAllOthers) {
  test::run_ranks(GetParam(),
                  [](Communicator& comm, Store&) {
                    comm.barrier().wait();
                    if (comm.rank() == 1) raise(SIGKILL);
                    auto x = at::ones({100'000});
                    EXPECT_THAT(
                        comm_error([&] {
                          comm.all_reduce(x, ReduceOp::kSum).wait();
                          comm.barrier().wait();
                        }),
                        AllOf(HasSubstr("rank 1 (pid "), HasSubstr(") is gone")));
                  },
                  {1});
}

TEST_P(KilledTest, AKilledSenderIsNamedByItsReceiver) {
  test::run_ranks(GetParam(),
                  [](Communicator& comm, Store&) {
                    if (comm.rank() == 1) raise(SIGKILL);
                    if (comm.rank() != 0) return;
                    const Transfer receive[] = {{1, at::ones({10})}};
                    EXPECT_THAT(
                        comm_error([&] { comm.exchange({}, receive).wait(); }),
                        AllOf(HasSubstr("rank 1 (pid "), HasSubstr(") is gone")));
                  },
                  {1});
}

INSTANTIATE_TEST_SUITE_P(EveryWorld, KilledTest,
                         testing::ValuesIn(test::only(test::Kind::kProcesses,
                                                      test::every_checked_world({2, 3,
                                                                                 5}))),
                         test::world_name);

}  // namespace
}  // namespace cohort
