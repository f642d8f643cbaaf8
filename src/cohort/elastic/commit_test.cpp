// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/commit.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using StepPhase = VoteState::Phase;

StateReport at(int64_t committed, StepPhase phase = StepPhase::kCommitted,
               bool against = false) {
  return {.committed = committed, .flight = {phase, against}};
}
const StateReport kNewcomer{};

void expect(const Decision& decision, int64_t committed, bool holds, bool finishes) {
  EXPECT_EQ(decision.committed, committed);
  EXPECT_EQ(decision.holds, holds);
  EXPECT_EQ(decision.finishes, finishes);
}

TEST(Commit, WithoutAnyStateThereIsNothingToGoOnFrom) {
  expect(decide(std::vector{kNewcomer, kNewcomer}, 0), -1, false, false);
}

TEST(Commit, AStepThatSomebodyHasNotVotedOnIsAbandoned) {
  const std::vector reports{at(7, StepPhase::kVoted), kNewcomer,
                            at(7, StepPhase::kBefore)};
  for (int rank : {0, 2}) expect(decide(reports, rank), 7, true, false);
  expect(decide(reports, 1), 7, false, false);
}

TEST(Commit, AStepThatAllWhoAreLeftHaveVotedOnIsFinished) {
  const std::vector reports{at(7, StepPhase::kVoted), kNewcomer,
                            at(7, StepPhase::kVoted)};
  for (int rank : {0, 2}) {
    expect(decide(reports, rank), 8, true, true);
    EXPECT_FALSE(decide(reports, rank).skip);
  }
  expect(decide(reports, 1), 8, false, false);
}

TEST(Commit, OneWhoSawTheVotePassIsEnough) {
  const std::vector reports{at(7, StepPhase::kVoted), at(7, StepPhase::kDecided),
                            kNewcomer};
  for (int rank : {0, 1}) expect(decide(reports, rank), 8, true, true);
}

TEST(Commit, WhoeverIsAStepBehindFinishesIt) {
  const std::vector reports{at(8, StepPhase::kBefore), at(7, StepPhase::kVoted), at(8)};
  expect(decide(reports, 0), 8, true, false);
  expect(decide(reports, 1), 8, true, true);
  expect(decide(reports, 2), 8, true, false);
}

TEST(Commit, AVoteAgainstIsCarriedOutByAll) {
  const std::vector undecided{at(7, StepPhase::kVoted, true), at(7, StepPhase::kVoted)};
  EXPECT_TRUE(decide(undecided, 1).skip);
  std::vector behind{at(8), at(7, StepPhase::kVoted)};
  EXPECT_FALSE(decide(behind, 1).skip);
  behind[0].skipped = true;
  EXPECT_TRUE(decide(behind, 1).skip);
}

TEST(Commit, WhoeverIsTooFarBehindHasNoState) {
  expect(decide(std::vector{at(8), at(6)}, 1), 8, false, false);
  expect(decide(std::vector{at(8), at(7, StepPhase::kBefore)}, 1), 8, false, false);
}

TEST(Commit, StandsReachEveryRank) {
  test::run_ranks({"local", 3}, [](Communicator& comm) {
    StateReport mine = at(40 + comm.rank(), StepPhase::kDecided, comm.rank() == 1);
    mine.skipped = comm.rank() == 2;
    const auto all = exchange_reports(comm, mine);
    ASSERT_EQ(all.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(all[r].committed, 40 + r);
      EXPECT_EQ(all[r].flight.phase, StepPhase::kDecided);
      EXPECT_EQ(all[r].flight.against, r == 1);
      EXPECT_EQ(all[r].skipped, r == 2);
    }
  });
}

TEST(Commit, StandsOfALostWorldAreNone) {
  test::run_ranks({"local", 2}, [](Communicator& comm) {
    if (comm.rank() == 1) return comm.abort("gone");
    EXPECT_THROW(exchange_reports(comm, at(7)), CommError);
  });
}

}  // namespace
}  // namespace cohort
