// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/commit.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort {
namespace {

constexpr int64_t kStandNumbers = 4;

// The vote on the step that ranks with the most steps had in flight.
struct Outcome {
  bool passed = false;
  bool skip = false;
};

Outcome outcome_of(std::span<const Stand> stands, int64_t most) {
  bool all_voted = true, against = false;
  for (const auto& stand : stands) {
    if (stand.committed < 0) continue;
    const bool in_flight = stand.committed == most;
    if (in_flight && stand.flight.phase == Standing::Phase::kDecided)
      return {true, stand.flight.against};
    all_voted &= in_flight && stand.flight.phase == Standing::Phase::kVoted;
    against |= in_flight && stand.flight.against;
  }
  return {all_voted, against};
}

bool can_finish(const Stand& stand) {
  return stand.flight.phase == Standing::Phase::kVoted ||
         stand.flight.phase == Standing::Phase::kDecided;
}

}  // namespace

Decision decide(std::span<const Stand> stands, int rank) {
  int64_t most = -1;
  for (const auto& stand : stands) most = std::max(most, stand.committed);
  if (most < 0) return {};
  const Outcome outcome = outcome_of(stands, most);
  const Stand& mine = stands[rank];
  Decision decision{.committed = most + (outcome.passed ? 1 : 0)};
  if (mine.committed < 0) return decision;
  if (mine.committed == decision.committed) {
    decision.holds = true;
    return decision;
  }
  if (mine.committed + 1 != decision.committed || !can_finish(mine)) return decision;
  decision.holds = decision.finishes = true;
  decision.skip = outcome.skip;
  for (const auto& stand : stands)
    if (stand.committed == decision.committed) decision.skip = stand.skipped;
  return decision;
}

std::vector<Stand> exchange_stands(Communicator& comm, const Stand& mine) {
  const Tensor row =
      at::tensor({mine.committed, static_cast<int64_t>(mine.flight.phase),
                  int64_t{mine.flight.against}, int64_t{mine.skipped}},
                 at::kLong);
  Tensor all = at::empty({comm.size() * kStandNumbers}, at::kLong);
  comm.all_gather(all, row).wait();
  std::vector<Stand> stands;
  for (int r = 0; r < comm.size(); ++r) {
    const int64_t* const said = all.const_data_ptr<int64_t>() + r * kStandNumbers;
    stands.push_back({.committed = said[0],
                      .flight = {static_cast<Standing::Phase>(said[1]), said[2] != 0},
                      .skipped = said[3] != 0});
  }
  return stands;
}

}  // namespace cohort
