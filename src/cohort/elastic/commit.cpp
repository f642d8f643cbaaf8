// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/commit.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort {
namespace {

constexpr int64_t kStandNumbers = 7;

// The vote on the step that ranks with the most steps had in flight.
struct Outcome {
  bool passed = false;
  bool skip = false;
};

Outcome outcome_of(std::span<const StateReport> reports, int64_t most, int64_t sound) {
  bool all_voted = true, against = false;
  for (const auto& report : reports) {
    if (report.committed < 0 || report.committed > sound) continue;
    const bool in_flight = report.committed == most;
    if (in_flight && report.flight.phase == VoteState::Phase::kDecided)
      return {true, report.flight.against};
    all_voted &= in_flight && report.flight.phase == VoteState::Phase::kVoted;
    against |= in_flight && report.flight.against;
  }
  return {all_voted, against};
}

bool can_finish(const StateReport& report) {
  return report.flight.phase == VoteState::Phase::kVoted ||
         report.flight.phase == VoteState::Phase::kDecided;
}

}  // namespace

Decision decide(std::span<const StateReport> reports, int rank) {
  const int64_t sound = sound_until(reports);
  int64_t most = -1;
  for (const auto& report : reports)
    if (report.committed <= sound) most = std::max(most, report.committed);
  if (most < 0) return {};
  const Outcome outcome = outcome_of(reports, most, sound);
  const StateReport& mine = reports[rank];
  Decision decision{.committed = most + (outcome.passed ? 1 : 0)};
  if (mine.committed < 0 || mine.committed > sound) return decision;
  if (mine.committed == decision.committed) {
    decision.holds = true;
    return decision;
  }
  if (mine.committed + 1 != decision.committed || !can_finish(mine)) return decision;
  decision.holds = decision.finishes = true;
  decision.skip = outcome.skip;
  for (const auto& report : reports)
    if (report.committed == decision.committed) decision.skip = report.skipped;
  return decision;
}

int64_t sound_until(std::span<const StateReport> reports) {
  int64_t least = StateReport::kAll;
  for (const auto& report : reports) least = std::min(least, report.sound_until);
  return least;
}

int64_t known_good(std::span<const StateReport> reports) {
  int64_t most = 0;
  for (const auto& report : reports) most = std::max(most, report.known_good);
  return most;
}

bool any_begun(std::span<const StateReport> reports) {
  return std::ranges::any_of(reports,
                             [](const StateReport& report) { return report.begun; });
}

std::vector<StateReport> exchange_reports(Communicator& comm, const StateReport& mine) {
  const Tensor row =
      at::tensor({mine.committed, static_cast<int64_t>(mine.flight.phase),
                  int64_t{mine.flight.against}, int64_t{mine.skipped},
                  int64_t{mine.begun}, mine.known_good, mine.sound_until},
                 at::kLong);
  Tensor all = at::empty({comm.size() * kStandNumbers}, at::kLong);
  comm.all_gather(all, row).wait();
  std::vector<StateReport> reports;
  for (int r = 0; r < comm.size(); ++r) {
    const int64_t* const said = all.const_data_ptr<int64_t>() + r * kStandNumbers;
    reports.push_back({.committed = said[0],
                       .flight = {static_cast<VoteState::Phase>(said[1]), said[2] != 0},
                       .skipped = said[3] != 0,
                       .begun = said[4] != 0,
                       .known_good = said[5],
                       .sound_until = said[6]});
  }
  return reports;
}

}  // namespace cohort
