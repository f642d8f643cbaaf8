// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/elastic_state.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

struct EventRow {
  std::array<std::optional<ElasticState>, kNumElasticStates> next;  // by state
  ElasticEvent event;
};

constexpr std::array<EventRow, kNumElasticEvents> make_elastic_table() {
  using enum ElasticEvent;
  constexpr auto runs = ElasticState::kRunning;
  constexpr auto fini = ElasticState::kFinishing;
  constexpr auto done = ElasticState::kFinished;
  constexpr auto stop = ElasticState::kStopping;
  constexpr auto stpd = ElasticState::kStoppingFinished;
  constexpr auto ends = ElasticState::kEnding;
  constexpr auto endd = ElasticState::kEndingFinished;
  constexpr auto none = std::nullopt;  // there is no such event in that state
  return {{
      // in runs, fini, done, stop, stpd, ends, endd, at this event, it becomes
      {{fini, fini, done, stop, stpd, ends, endd}, kRankEndedWell},
      {{runs, fini, done, stop, stpd, ends, endd}, kRankDied},
      {{done, done, done, stpd, stpd, endd, endd}, kRank0EndedWell},
      {{runs, fini, fini, stop, stop, ends, ends}, kRank0Died},
      {{none, none, done, none, stpd, none, endd}, kRank0LastWord},
      {{done, done, done, stpd, stpd, endd, endd}, kEndPromised},
      {{runs, runs, none, stop, none, none, none}, kWorldOpened},
      {{runs, none, none, none, none, none, none}, kResizeAsked},
      {{runs, none, none, none, none, none, none}, kSpareWanted},
      {{stop, stop, stpd, stop, stpd, ends, endd}, kStopAsked},
      {{none, none, none, ends, endd, ends, endd}, kDiedOfStop},
      {{ends, ends, endd, ends, endd, none, none}, kGaveUp},
      {{ends, ends, endd, ends, endd, ends, endd}, kKilled},
  }};
}

constexpr auto kElasticTable = make_elastic_table();

constexpr bool is_in_order(const std::array<EventRow, kNumElasticEvents>& table) {
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i].event != ElasticEvent{static_cast<int>(i)}) return false;
  return true;
}
static_assert(is_in_order(kElasticTable), "a row for each event, in their order");

constexpr std::array<std::string_view, kNumElasticStates> kElasticStateNames = {
    "running", "finishing",       "finished", "stopping", "stopping, finished",
    "ending",  "ending, finished"};

constexpr std::array<std::string_view, kNumElasticEvents> kElasticEventNames = {
    "a rank ended well",       "a rank died",
    "rank 0 ended well",       "rank 0 died",
    "rank 0's last word",      "the end was promised",
    "a world opened",          "a resize was asked for",
    "a spare is wanted",       "a stop was asked for",
    "a rank died of the stop", "the run was given up",
    "all were killed"};

}  // namespace

std::optional<ElasticState> after(ElasticState state, ElasticEvent event) {
  return kElasticTable[static_cast<size_t>(event)].next[static_cast<size_t>(state)];
}

std::ostream& operator<<(std::ostream& out, ElasticState state) {
  return out << kElasticStateNames[static_cast<size_t>(state)];
}

std::ostream& operator<<(std::ostream& out, ElasticEvent event) {
  return out << kElasticEventNames[static_cast<size_t>(event)];
}

void ElasticLife::on(ElasticEvent event) {
  const auto next = after(state_, event);
  COHORT_CHECK(next.has_value(), "an elastic run in state \"", state_,
               "\" cannot have: ", event);
  state_ = *next;
}

bool ElasticLife::is_finished() const {
  return state_ == ElasticState::kFinished ||
         state_ == ElasticState::kStoppingFinished ||
         state_ == ElasticState::kEndingFinished;
}

bool ElasticLife::is_stopping() const {
  return state_ == ElasticState::kStopping ||
         state_ == ElasticState::kStoppingFinished || is_ending();
}

bool ElasticLife::is_ending() const {
  return state_ == ElasticState::kEnding || state_ == ElasticState::kEndingFinished;
}

}  // namespace cohort::process
