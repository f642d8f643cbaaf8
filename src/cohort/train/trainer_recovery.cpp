// SPDX-License-Identifier: Apache-2.0
// How a world begins: which step it goes on from, and where its ranks get the state.
#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/train/trainer.h"

namespace cohort {

Stand Trainer::stand(const StepRunner* before) const {
  if (!before || committed_ < 0) return {};
  return {.committed = committed_, .flight = before->standing(), .skipped = skipped_};
}

// `before`: what this process ran in the world before, null if it is new.
void Trainer::settle(std::unique_ptr<StepRunner> before) {
  const auto stands = exchange_stands(*comm_, stand(before.get()));
  const Decision decision = decide(stands, comm_->rank());
  if (decision.committed < 0) return start_anew();
  if (decision.finishes) conclude(before->finish(decision.skip), 0);
  std::vector<StatePiece> have;
  if (decision.holds) have = before->state(Holding::kHeld);
  const std::string lost = exchange_state(*comm_, have, runner_->state(Holding::kHeld));
  if (!lost.empty())
    throw CommError(text("[train] ", lost, ": too many ranks were lost at once"));
  adopt(decision.holds ? before.get() : nullptr, stands);
  committed_ = decision.committed;
  runner_->refresh();
}

// What belongs to the run and is no tensor, from the first rank that has it.
void Trainer::adopt(StepRunner* holder, std::span<const Stand> stands) {
  std::ostringstream mine;
  if (holder)
    mine << validated_ << ' ' << stopping_ << ' ' << skipped_ << '\n'
         << holder->small_state();
  const auto said = meeting_over(*comm_).gather(mine.str());
  int first = 0;
  while (!decide(stands, first).holds) ++first;
  std::istringstream in(said[first]);
  in >> validated_ >> stopping_ >> skipped_;
  std::string small;
  std::getline(in >> std::ws, small);
  runner_->set_small_state(small);
}

}  // namespace cohort
