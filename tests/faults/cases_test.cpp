// SPDX-License-Identifier: Apache-2.0
#include "faults/cases.h"

#include <gtest/gtest.h>

#include <set>

#include "cohort/core/testing_long_form.h"

namespace cohort::threads {
namespace {

// Points with kinds.
std::set<std::string> places_of(const std::vector<Strike>& strikes) {
  std::set<std::string> places;
  for (const auto& [point, rank, pass, kind, may_miss] : strikes)
    places.insert(point + ": " + kKindNames[static_cast<int>(kind)]);
  return places;
}

std::vector<Strike> sure_ones(std::vector<Strike> strikes) {
  std::erase_if(strikes, [](const Strike& one) { return one.may_miss; });
  return strikes;
}

// A run in which nobody knows how often ranks come anywhere; rank 2 is a newcomer.
const Scenario kVaries{.plot = Plot::kKilled, .ranks = 2};
const Passes kPasses = {{{"engine.action", 0}, 80}, {{"engine.action", 2}, 40},
                        {{"disk.write", 0}, 30},    {{"train.begin", 1}, 2},
                        {{"comm.message", 1}, 900}, {{"backup.load", 2}, 4}};

TEST(ChosenCases, StrikeEveryPointWithEveryKind) {
  const auto all = all_strikes(kVaries, kPasses);
  EXPECT_EQ(places_of(choose(all, kVaries, {})), places_of(all));
}

TEST(ChosenCases, MayMissOnlyWhereNoneIsSure) {
  const auto all = all_strikes(kVaries, kPasses);
  const auto sure = places_of(sure_ones(all));
  EXPECT_FALSE(sure.contains("backup.load: killed"));
  EXPECT_EQ(places_of(sure_ones(choose(all, kVaries, {}))), sure);
}

TEST(ChosenCases, AreSharedByThreeUndisturbedLayouts) {
  if (test::is_long()) return;  // each layout has all
  const Passes passes = {{{"engine.action", 0}, 80}, {{"comm.message", 1}, 900}};
  std::set<std::string> together;
  size_t count = 0;
  for (const int shard : {0, 1, 2}) {
    const Scenario one{Plot::kCalm, 2, shard};
    const auto places = places_of(choose(all_strikes(one, passes), one, passes));
    together.insert(places.begin(), places.end());
    count += places.size();
  }
  const Scenario one{Plot::kCalm, 2, 0};
  EXPECT_EQ(together, places_of(all_strikes(one, passes)));
  EXPECT_EQ(count, together.size());
}

}  // namespace
}  // namespace cohort::threads
