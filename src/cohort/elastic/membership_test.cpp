// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/membership.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <future>

#include "cohort/comm/local_store.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLimit{60};

World world_of(int generation, int size = 2) {
  World world;
  world.size = world.local_size = size;
  world.generation = generation;
  world.master_port = 1;
  world.launcher = "cohort";
  return world;
}

// The agent's end of a link, driven by the test.
class FakeAgent {
 public:
  FakeAgent() : FakeAgent(AgentLink::make_pair()) {}

  AgentLink rank_end() { return std::move(ends_->second); }
  AgentLink& link() { return ends_->first; }
  ProgressPage& progress_page() { return progress_page_; }
  void hang_up() { ends_.reset(); }

  LinkMessage next() {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < deadline) {
      if (auto message = link().receive()) return std::move(*message);
      pollfd event{link().fd(), POLLIN, 0};
      ::poll(&event, 1, 1000);
    }
    ADD_FAILURE() << "no message came";
    return {};
  }

 private:
  explicit FakeAgent(std::pair<AgentLink, AgentLink> ends) : ends_(std::move(ends)) {
    EXPECT_TRUE(link().send(LinkMessage::kProgressPage, 0, {}, progress_page_.fd()));
  }

  std::optional<std::pair<AgentLink, AgentLink>> ends_;
  ProgressPage progress_page_;
};

class MembershipTest : public testing::Test {
 protected:
  FakeAgent agent_;
};

// A group of one, with the message thread's abort made visible.
class ConnectedThreads {
 public:
  ConnectedThreads() : comm_(connect(World{}, store_, {.backend = "local"})) {}

  Communicator& comm() { return *comm_; }
  // Throws the reason once the group is aborted.
  std::string reason() {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    return test::message_of<CommError>([&] {
      while (std::chrono::steady_clock::now() < deadline) comm_->barrier().wait();
    });
  }

 private:
  LocalStore store_;
  std::unique_ptr<Communicator> comm_;
};

TEST_F(MembershipTest, NeedsABoard) {
  auto ends = AgentLink::make_pair();
  EXPECT_THROW(Membership(std::move(ends.second), std::nullopt), CommError);
}

TEST_F(MembershipTest, IsNoneWithoutAnAgent) {
  ::unsetenv("COHORT_AGENT_FD");
  EXPECT_EQ(Membership::from_env(), nullptr);
}

TEST_F(MembershipTest, GoesFromWorldToWorld) {
  Membership membership(agent_.rank_end(), world_of(0));
  EXPECT_FALSE(membership.is_spare());
  EXPECT_EQ(membership.first_world()->generation, 0);
  auto next = std::async(std::launch::async,
                         [&] { return membership.next_world("a peer died"); });
  const LinkMessage lost = agent_.next();
  EXPECT_EQ(lost.kind, LinkMessage::kLost);
  EXPECT_EQ(lost.generation, 0);
  EXPECT_EQ(lost.text, "a peer died");
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1, 3)));
  EXPECT_EQ(next.get().size, 3);
}

TEST_F(MembershipTest, SkipsAWorldThatIsOverBeforeItWasSeen) {
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1)));
  agent_.link().send(LinkMessage::kWorld, 2, encode(world_of(2)));
  agent_.link().send(LinkMessage::kHeld, 2);  // seen: all before it has been, too
  Membership membership(agent_.rank_end(), world_of(0));
  EXPECT_TRUE(membership.held().empty());
  EXPECT_EQ(membership.first_world()->generation, 2);
}

TEST_F(MembershipTest, KnowsTheSignalThatTheRunIsAskedToStopBy) {
  agent_.link().send(LinkMessage::kStop, 0, "15");
  agent_.link().send(LinkMessage::kHeld, 0);  // seen: all before it has been, too
  Membership membership(agent_.rank_end(), world_of(0));
  EXPECT_TRUE(membership.held().empty());
  EXPECT_EQ(membership.stop_signal(), 15);
}

TEST_F(MembershipTest, ASpareWaitsUntilItIsNeeded) {
  Membership membership(agent_.rank_end(), std::nullopt);
  auto first = std::async(std::launch::async, [&] { return membership.first_world(); });
  EXPECT_EQ(agent_.next().kind, LinkMessage::kWaiting);
  agent_.link().send(LinkMessage::kWorld, 4, encode(world_of(4)));
  EXPECT_EQ(first.get()->generation, 4);
}

TEST_F(MembershipTest, ASpareLeavesWithARunThatDidNotNeedIt) {
  Membership membership(agent_.rank_end(), std::nullopt);
  agent_.link().send(LinkMessage::kDismissed, 0);
  EXPECT_FALSE(membership.first_world());
}

TEST_F(MembershipTest, ASpareLeavesWhenTheAgentIsGone) {
  Membership membership(agent_.rank_end(), std::nullopt);
  agent_.hang_up();
  EXPECT_FALSE(membership.first_world());
}

TEST_F(MembershipTest, KnowsWhetherItsWorldIsOver) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  EXPECT_FALSE(membership.is_over());
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1)));
  agent_.link().send(LinkMessage::kHeld, 1);  // seen: all before it has been, too
  EXPECT_TRUE(membership.held().empty());
  EXPECT_TRUE(membership.is_over());
  membership.next_world("over");
  EXPECT_FALSE(membership.is_over());
}

TEST_F(MembershipTest, ANewGenerationAbortsTheWatchedGroup) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  ConnectedThreads group;
  const auto watch = membership.watch(group.comm());
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1)));
  EXPECT_THAT(group.reason(), HasSubstr("generation 1 has 2 ranks"));
  EXPECT_EQ(membership.next_world("aborted").generation, 1);
}

TEST_F(MembershipTest, AWorldThatAnotherRankLostIsGivenUp) {
  Membership membership(agent_.rank_end(), world_of(3));
  membership.first_world();
  ConnectedThreads group, next;
  agent_.link().send(LinkMessage::kBroken, 2, "an earlier world");
  agent_.link().send(LinkMessage::kBroken, 3, "rank 1: a peer is late");
  {
    const auto watch = membership.watch(group.comm());
    EXPECT_THAT(group.reason(), HasSubstr("rank 1: a peer is late"));
  }
  auto world =
      std::async(std::launch::async, [&] { return membership.next_world("given up"); });
  EXPECT_EQ(agent_.next().kind, LinkMessage::kLost);
  agent_.link().send(LinkMessage::kWorld, 4, encode(world_of(4)));
  EXPECT_EQ(world.get().generation, 4);
  const auto watch = membership.watch(next.comm());
  next.comm().barrier().wait();
}

TEST_F(MembershipTest, AGroupOfAWorldThatIsOverIsAbortedAtOnce) {
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1)));
  agent_.link().send(LinkMessage::kHeld, 1);
  Membership membership(agent_.rank_end(), world_of(0));
  ConnectedThreads late, next;
  EXPECT_TRUE(membership.held().empty());
  { const auto watch = membership.watch(late.comm()); }
  EXPECT_THROW(late.comm().barrier().wait(), CommError);
  membership.next_world("aborted");
  const auto watch = membership.watch(next.comm());
  next.comm().barrier().wait();
}

TEST_F(MembershipTest, AGroupIsLeftAloneOnceItsGuardIsGone) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  ConnectedThreads group;
  { const auto watch = membership.watch(group.comm()); }
  agent_.link().send(LinkMessage::kWorld, 1, encode(world_of(1)));
  EXPECT_EQ(membership.next_world("left").generation, 1);
  group.comm().barrier().wait();
}

TEST_F(MembershipTest, ADismissedRankIsToldSo) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  agent_.link().send(LinkMessage::kDismissed, 1);
  EXPECT_THROW(membership.next_world("aborted"), Dismissed);
}

TEST_F(MembershipTest, SaysWhyThereIsNoNextWorld) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  agent_.link().send(LinkMessage::kRunEnds, 0, "rank 1 died three times");
  EXPECT_THAT(test::message_of<CommError>([&] { membership.next_world("aborted"); }),
              HasSubstr("rank 1 died three times"));
}

TEST_F(MembershipTest, GivesUpOnAnAgentThatIsGoneOrSilent) {
  Membership membership(agent_.rank_end(), world_of(0));
  membership.first_world();
  EXPECT_THROW(membership.next_world("lost", std::chrono::milliseconds(1)), CommError);
  agent_.hang_up();
  EXPECT_THROW(membership.next_world("lost"), CommError);
  EXPECT_THROW(membership.held(), CommError);
}

TEST_F(MembershipTest, FinishesWithTheAgentsConsent) {
  Membership membership(agent_.rank_end(), world_of(2));
  membership.first_world();
  agent_.link().send(LinkMessage::kFinished, 2);
  membership.finish();
  EXPECT_TRUE(membership.finished());
  EXPECT_EQ(agent_.next().kind, LinkMessage::kFinish);
}

TEST_F(MembershipTest, DoesNotFinishAWorldThatIsOver) {
  Membership membership(agent_.rank_end(), world_of(2));
  membership.first_world();
  agent_.link().send(LinkMessage::kWorld, 3, encode(world_of(3)));
  EXPECT_THROW(membership.finish(), CommError);
  EXPECT_FALSE(membership.finished());
}

TEST_F(MembershipTest, NotesCommittedStepsOnTheBoard) {
  agent_.progress_page().commit(1, 40);
  World world = world_of(0);
  world.rank = 1;
  Membership membership(agent_.rank_end(), world);
  membership.first_world();
  EXPECT_EQ(membership.committed_before(), 40);
  membership.committed(41);
  EXPECT_EQ(agent_.progress_page().highest(), 41);
  EXPECT_EQ(agent_.progress_page().committed(1), 41);
}

TEST_F(MembershipTest, HandsMemoryToTheAgentAndAsksForIt) {
  Membership membership(agent_.rank_end(), world_of(0));
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::write(memory.get(), "state", 5), 5);
  membership.hold("rank0", memory.get());
  const LinkMessage hold = agent_.next();
  EXPECT_EQ(hold.kind, LinkMessage::kHold);
  EXPECT_EQ(hold.text, "rank0");

  auto all = std::async(std::launch::async, [&] { return membership.held(); });
  EXPECT_EQ(agent_.next().text, "");
  agent_.link().send(LinkMessage::kHeld, 0, "rank0", hold.fd.get());
  EXPECT_EQ(agent_.next().text, "rank0");
  agent_.link().send(LinkMessage::kHeld, 0);
  const auto held = all.get();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].name, "rank0");
  char bytes[5];
  ASSERT_EQ(::pread(held[0].fd.get(), bytes, 5, 0), 5);
  EXPECT_EQ(std::string(bytes, 5), "state");
}

}  // namespace
}  // namespace cohort
