// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/tcp_store.h"
#include "cohort/comm/testing_world.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::rank_of;
using testing::Each;
using testing::Eq;
using testing::HasSubstr;

struct Guest {
  World world;
  std::string version = "1.0";
};

// All guests join at once, as threads; "ok", or the kind and text of the error.
std::vector<std::string> join_all(const std::vector<Guest>& guests,
                                  std::chrono::milliseconds timeout = 20s) {
  std::vector<std::string> results(guests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < guests.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        ConnectOptions options;
        options.join_timeout = timeout;
        auto store = join_as(guests[i].world, options, guests[i].version);
        // A store hosted by rank 0 must stay until all have what they need.
        store->add("left", 1);
        while (guests[i].world.hosts_store &&
               store->add("left", 0) < guests[i].world.size) {
          std::this_thread::yield();
        }
        results[i] = "ok";
      } catch (const ConfigError& error) {
        results[i] = text("config: ", error.what());
      } catch (const CommError& error) {
        results[i] = text("comm: ", error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

class JoinSizes : public testing::TestWithParam<int> {};

TEST_P(JoinSizes, AWorldThatAgreesIsWhole) {
  StoreServer server;
  std::vector<Guest> guests;
  for (int rank = 0; rank < GetParam(); ++rank) {
    guests.push_back({rank_of(rank, GetParam(), server.port())});
  }
  EXPECT_THAT(join_all(guests), Each(Eq("ok")));
}

INSTANTIATE_TEST_SUITE_P(EverySize, JoinSizes, testing::Values(1, 2, 3, 5));

TEST(Join, AWorldOfOneNeedsNoStore) {
  auto store = join(World{}, {});
  store->set("a", "b");
  EXPECT_EQ(store->get("a", 1s), "b");
  EXPECT_TRUE(store->has("a"));
  EXPECT_FALSE(store->has("c"));
  EXPECT_EQ(store->add("n", 2) + store->add("n", 3), 7);
  EXPECT_THROW(store->get("c", 10ms), CommError);
}

TEST(Join, RankZeroHostsTheStoreWhereNoAgentDoes) {
  int port = 0;
  {
    Listener free("127.0.0.1", 0);
    port = free.port();
  }
  std::vector<Guest> guests;
  for (int rank : {1, 0, 2}) guests.push_back({rank_of(rank, 3, port)});
  guests[1].world.hosts_store = true;
  EXPECT_THAT(join_all(guests), Each(Eq("ok")));
  // A refusal, too, reaches everyone before the host takes the store away.
  guests[2].version = "2.0";
  EXPECT_THAT(join_all(guests), Each(HasSubstr("config: [comm.join] program version")));
}

TEST(Join, GenerationsAndTokensDoNotMeet) {
  StoreServer server;
  EXPECT_THAT(join_all({{rank_of(0, 1, server.port())}}), Each(Eq("ok")));
  Guest later{rank_of(0, 1, server.port())};
  EXPECT_THAT(join_all({later}), Each(HasSubstr("came twice")));
  later.world.generation = 1;
  EXPECT_THAT(join_all({later}), Each(Eq("ok")));
  later.world.token = "other";
  EXPECT_THAT(join_all({later}), Each(Eq("ok")));
}

TEST(Join, ADifferentWorldSizeIsRefusedOnEveryRankWithBothValues) {
  StoreServer server;
  const auto results = join_all({{rank_of(0, 2, server.port())},
                                 {rank_of(1, 3, server.port())},
                                 {rank_of(2, 3, server.port())}});
  EXPECT_THAT(results,
              Each(HasSubstr("config: [comm.join] world size differs: rank ")));
  EXPECT_THAT(results, Each(testing::ContainsRegex("given [23], rank .* [23];")));
}

TEST(Join, ADifferentVersionIsRefusedOnEveryRankWithBothValues) {
  StoreServer server;
  const auto results = join_all({{rank_of(0, 3, server.port())},
                                 {rank_of(1, 3, server.port()), "1.1"},
                                 {rank_of(2, 3, server.port())}});
  EXPECT_THAT(results, Each(HasSubstr("config: [comm.join] program version differs")));
  EXPECT_THAT(results, Each(HasSubstr("1.1")));
  EXPECT_THAT(results, Each(HasSubstr("1.0")));
}

TEST(Join, TwoProcessesWithOneRankAreRefused) {
  StoreServer server;
  const auto results =
      join_all({{rank_of(0, 2, server.port())}, {rank_of(0, 2, server.port())}});
  EXPECT_THAT(results, Each(HasSubstr("config: [comm.join] rank 0 came twice")));
}

TEST(Join, RanksThatNeverComeAreNamed) {
  StoreServer server;
  const auto results =
      join_all({{rank_of(0, 4, server.port())}, {rank_of(2, 4, server.port())}}, 300ms);
  EXPECT_THAT(results,
              Each(HasSubstr("comm: [comm.join] ranks that never came: 1, 3 of "
                             "4 (waited 300 ms)")));
  // A rank that comes too late is told so; it does not complete the world.
  EXPECT_THAT(join_all({{rank_of(1, 4, server.port())}}),
              Each(HasSubstr("ranks that never came")));
}

TEST(Join, AWorldThatIsClosedLetsGoOfThoseWhoWaitAndThoseWhoCome) {
  StoreServer server;
  std::thread closer([&] {
    // Somebody waits for the others.
    const std::string agreed = StoreSeal("cohort/token/0/").name("join/agreed");
    while (server.add(agreed, 0) == 0) std::this_thread::yield();
    EXPECT_TRUE(close_world(rank_of(0, 2, server.port()), server, "it is over"));
  });
  EXPECT_THAT(join_all({{rank_of(0, 2, server.port())}}), Each(Eq("comm: it is over")));
  closer.join();
  EXPECT_THAT(join_all({{rank_of(1, 2, server.port())}}), Each(Eq("comm: it is over")));
}

TEST(Join, AWorldThatIsWholeIsNotClosed) {
  StoreServer server;
  EXPECT_THAT(
      join_all({{rank_of(0, 2, server.port())}, {rank_of(1, 2, server.port())}}),
      Each(Eq("ok")));
  EXPECT_FALSE(close_world(rank_of(0, 2, server.port()), server, "it is over"));
}

TEST(Join, TheProgramsVersionHasReleaseAndBuild) {
  EXPECT_THAT(program_version(), testing::MatchesRegex("[0-9.]+\\+[0-9a-z]+"));
}

}  // namespace
}  // namespace cohort
