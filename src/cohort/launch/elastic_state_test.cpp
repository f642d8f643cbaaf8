// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/elastic_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

using enum ElasticState;
using enum ElasticEvent;

std::vector<ElasticState> every_state() {
  std::vector<ElasticState> all;
  for (int i = 0; i < kNumElasticStates; ++i) all.push_back(ElasticState{i});
  return all;
}

std::vector<ElasticEvent> every_event() {
  std::vector<ElasticEvent> all;
  for (int i = 0; i < kNumElasticEvents; ++i) all.push_back(ElasticEvent{i});
  return all;
}

// A life that is in that state.
ElasticLife life_in(ElasticState state) {
  const std::map<ElasticState, std::vector<ElasticEvent>> ways = {
      {kRunning, {}},
      {kFinishing, {kRankEndedWell}},
      {kFinished, {kEndPromised}},
      {kStopping, {kStopAsked}},
      {kStoppingFinished, {kEndPromised, kStopAsked}},
      {kEnding, {kKilled}},
      {kEndingFinished, {kEndPromised, kKilled}}};
  ElasticLife life;
  for (const ElasticEvent event : ways.at(state)) life.on(event);
  return life;
}

// All of a state: where events lead, and which there are not. All others change
// nothing.
struct StateRow {
  ElasticState state;
  std::map<ElasticEvent, ElasticState> moves;
  std::set<ElasticEvent> refused;
};

std::ostream& operator<<(std::ostream& out, const StateRow& row) {
  return out << row.state;
}

class EveryElasticState : public testing::TestWithParam<StateRow> {};

TEST_P(EveryElasticState, MovesStaysOrRefusesAtEachEvent) {
  const auto& [state, moves, refused] = GetParam();
  for (const ElasticEvent event : every_event()) {
    SCOPED_TRACE(testing::Message() << state << " at " << event);
    std::optional<ElasticState> next = state;
    if (moves.contains(event)) next = moves.at(event);
    if (refused.contains(event)) next = std::nullopt;
    EXPECT_EQ(after(state, event), next);
  }
}

TEST_P(EveryElasticState, IsLeftUnchangedByWhatItRefuses) {
  for (const ElasticEvent event : every_event()) {
    SCOPED_TRACE(event);
    ElasticLife life = life_in(GetParam().state);
    ASSERT_EQ(life.state(), GetParam().state);
    const auto next = after(life.state(), event);
    EXPECT_EQ(life.allows(event), next.has_value());
    if (next) {
      life.on(event);
      EXPECT_EQ(life.state(), *next);
    } else {
      EXPECT_THROW(life.on(event), Error);
      EXPECT_EQ(life.state(), GetParam().state);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, EveryElasticState,
    testing::Values(
        StateRow{.state = kRunning,
                 .moves = {{kRankEndedWell, kFinishing},
                           {kRank0EndedWell, kFinished},
                           {kEndPromised, kFinished},
                           {kStopAsked, kStopping},
                           {kGaveUp, kEnding},
                           {kKilled, kEnding}},
                 .refused = {kRank0LastWord, kDiedOfStop}},
        StateRow{.state = kFinishing,
                 .moves = {{kRank0EndedWell, kFinished},
                           {kEndPromised, kFinished},
                           {kWorldOpened, kRunning},
                           {kStopAsked, kStopping},
                           {kGaveUp, kEnding},
                           {kKilled, kEnding}},
                 .refused = {kRank0LastWord, kResizeAsked, kSpareWanted, kDiedOfStop}},
        StateRow{.state = kFinished,
                 .moves = {{kRank0Died, kFinishing},
                           {kStopAsked, kStoppingFinished},
                           {kGaveUp, kEndingFinished},
                           {kKilled, kEndingFinished}},
                 .refused = {kWorldOpened, kResizeAsked, kSpareWanted, kDiedOfStop}},
        StateRow{.state = kStopping,
                 .moves = {{kRank0EndedWell, kStoppingFinished},
                           {kEndPromised, kStoppingFinished},
                           {kDiedOfStop, kEnding},
                           {kGaveUp, kEnding},
                           {kKilled, kEnding}},
                 .refused = {kRank0LastWord, kResizeAsked, kSpareWanted}},
        StateRow{.state = kStoppingFinished,
                 .moves = {{kRank0Died, kStopping},
                           {kDiedOfStop, kEndingFinished},
                           {kGaveUp, kEndingFinished},
                           {kKilled, kEndingFinished}},
                 .refused = {kWorldOpened, kResizeAsked, kSpareWanted}},
        StateRow{.state = kEnding,
                 .moves = {{kRank0EndedWell, kEndingFinished},
                           {kEndPromised, kEndingFinished}},
                 .refused = {kRank0LastWord, kWorldOpened, kResizeAsked, kSpareWanted,
                             kGaveUp}},
        StateRow{.state = kEndingFinished,
                 .moves = {{kRank0Died, kEnding}},
                 .refused = {kWorldOpened, kResizeAsked, kSpareWanted, kGaveUp}}));

TEST(ElasticLife, BeginsRunning) { EXPECT_EQ(ElasticLife().state(), kRunning); }

TEST(ElasticLife, EveryStateAndEventHasANameOfItsOwn) {
  std::set<std::string> names;
  const auto add = [&](const auto& one) { names.insert(testing::PrintToString(one)); };
  for (const ElasticState state : every_state()) add(state);
  for (const ElasticEvent event : every_event()) add(event);
  EXPECT_EQ(names.size(), kNumElasticStates + kNumElasticEvents);
  EXPECT_TRUE(names.contains("stopping, finished"));
  EXPECT_TRUE(names.contains("rank 0's last word"));
}

TEST(ElasticLife, TheThreeQuestionsHaveAnAnswerInEachState) {
  using Answers = std::array<bool, 3>;  // finished, stopping, ending
  const std::map<ElasticState, Answers> answers = {
      {kRunning, {false, false, false}},        {kFinishing, {false, false, false}},
      {kFinished, {true, false, false}},        {kStopping, {false, true, false}},
      {kStoppingFinished, {true, true, false}}, {kEnding, {false, true, true}},
      {kEndingFinished, {true, true, true}}};
  for (const ElasticState state : every_state()) {
    const ElasticLife life = life_in(state);
    const Answers found = {life.is_finished(), life.is_stopping(), life.is_ending()};
    EXPECT_EQ(found, answers.at(state)) << state;
  }
}

TEST(ElasticLife, AStopIsNeverTakenBackNorAnEnd) {
  for (const ElasticState state : every_state()) {
    for (const ElasticEvent event : every_event()) {
      ElasticLife life = life_in(state);
      if (!life.allows(event)) continue;
      life.on(event);
      EXPECT_GE(life.is_stopping(), life_in(state).is_stopping()) << state << event;
      EXPECT_GE(life.is_ending(), life_in(state).is_ending()) << state << event;
    }
  }
}

// Else what rank 0 said would be said again.
TEST(ElasticLife, NoWorldOpensOnceRank0HasSaidThatTheRunIsDone) {
  for (const ElasticState state : every_state()) {
    const ElasticLife life = life_in(state);
    EXPECT_EQ(life.allows(kWorldOpened), !life.is_finished() && !life.is_ending());
  }
}

TEST(ElasticLife, APromiseIsVoidWithTheRankThatHasIt) {
  ElasticLife life;
  life.on(kEndPromised);
  life.on(kRank0Died);
  EXPECT_FALSE(life.is_finished());
  EXPECT_FALSE(life.allows(kResizeAsked)) << "ranks may have ended by it";
  life.on(kWorldOpened);
  EXPECT_EQ(life.state(), kRunning);
}

TEST(ElasticLife, ARefusalNamesStateAndEvent) {
  ElasticLife life = life_in(kEndingFinished);
  try {
    life.on(kWorldOpened);
    FAIL() << "it opened a world";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBug);
    EXPECT_THAT(error.what(), testing::HasSubstr("a world opened"));
    EXPECT_THAT(error.what(), testing::HasSubstr("ending, finished"));
  }
}

}  // namespace
}  // namespace cohort::process
