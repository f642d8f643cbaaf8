// SPDX-License-Identifier: Apache-2.0
#include "cohort/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/testing_world.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::Each;
using testing::HasSubstr;

// Ranks as threads; each sums its number + 1 over all.
std::vector<int64_t> sums_of(int size, const std::string& backend) {
  StoreServer server;
  std::vector<int64_t> sums(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Session session(test::rank_of(rank, size, server.port()), {.backend = backend});
      Tensor value = at::full({1}, session.rank() + 1, at::kLong);
      session.comm().all_reduce(value, ReduceOp::kSum).wait();
      sums[rank] = value.item<int64_t>();
    });
  }
  for (auto& rank : ranks) rank.join();
  return sums;
}

class SessionSizes : public testing::TestWithParam<int> {};

TEST_P(SessionSizes, RanksMeetAndReduce) {
  const int64_t n = GetParam();
  EXPECT_THAT(sums_of(GetParam(), "auto"), Each(n * (n + 1) / 2));
}

INSTANTIATE_TEST_SUITE_P(EverySize, SessionSizes, testing::Values(1, 2, 3));

TEST(Session, OverGlooRanksMeetAndReduceToo) {
  EXPECT_THAT(sums_of(3, "gloo"), Each(6));
}

TEST(Session, WithoutALauncherIsAWorldOfOne) {
  for (const char* name : {"RANK", "WORLD_SIZE", "COHORT_RUN_TOKEN"}) unsetenv(name);
  Session session = Session::from_env();
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.world().launcher, "none");
  EXPECT_EQ(session.comm().size(), 1);
}

TEST(Session, StaysUsableWhenItMoves) {
  Session first(World{});
  Session second = std::move(first);
  Tensor value = at::full({3}, 2.0F);
  second.comm().all_reduce(value, ReduceOp::kSum).wait();
  EXPECT_TRUE(at::equal(value, at::full({3}, 2.0F)));
}

TEST(Session, ABackendThatIsNotThereIsRefusedByName) {
  EXPECT_THAT(test::message_of<ConfigError>(
                  [&] { Session session(World{}, {.backend = "glooo"}); }),
              HasSubstr("'glooo', nearest is 'gloo'"));
}

}  // namespace
}  // namespace cohort
