// SPDX-License-Identifier: Apache-2.0
// How a world begins: which step it goes on from, and where its ranks get the state.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/train/trainer.h"

namespace cohort {

Stand Trainer::stand() const {
  if (!runner_ || committed_ < 0) return {};
  return {.committed = committed_,
          .flight = runner_->standing(),
          .skipped = progress_.skipped};
}

// What ran in the world before stays until the state is in `fresh`: if this world too
// is lost meanwhile, the next one finds it there.
void Trainer::settle(StepRunner& fresh, std::span<const Stand> stands) {
  const std::string lost = take_from_peers(fresh, stands);
  if (!lost.empty()) take_from_keeper(lost);
  journal_.begin(committed_, lost);
  // Whoever was to tell of a validation may be lost, and what is kept of a run does not
  // have its outcome: it is then made once more.
  if (const auto told = journal_.validation_told())
    progress_.validated = lost.empty() ? std::min(progress_.validated, *told) : 0;
}

// Returns why that cannot be, on all ranks alike.
std::string Trainer::take_from_peers(StepRunner& fresh, std::span<const Stand> stands) {
  const Decision decision = decide(stands, comm_->rank());
  if (decision.committed < 0) return "no rank has the state";
  if (decision.finishes) conclude(runner_->finish(decision.skip), 0);
  std::vector<StatePiece> have;
  if (decision.holds) have = runner_->state(Holding::kHeld);
  const std::string lost = exchange_state(*comm_, have, fresh.state(Holding::kHeld));
  if (!lost.empty()) return lost;
  adopt(fresh, decision.holds, stands);
  fresh.refresh();
  const bool is_new = std::exchange(committed_, decision.committed) < 0;
  if (is_new) journal_.catch_up(committed_, progress_.loss);
  return "";
}

void Trainer::take_from_keeper(const std::string& why) {
  const auto saved = keeper_.restore();
  if (!saved && committed_ >= 0)
    throw CheckpointError(
        text("[train] ", why, ", and nothing is saved to go back to"));
  committed_ = progress_.known_good = saved ? saved->step : 0;
  progress_.skipped = false;
  progress_.validated = committed_ / sampler_.steps_per_epoch();
  keeper_.pin(committed_);
  keeper_.start(run_state());
  if (!saved && comm_->generation() > 0)
    journal_.note(
        text("[train] ", why, ", and nothing is saved: the run starts again"));
}

RunState Trainer::run_state() const {
  RunState run{.step = committed_};
  run.metrics["loss"] = progress_.loss;
  if (progress_.accuracy) run.metrics["accuracy"] = *progress_.accuracy;
  return run;
}

// What belongs to the run and is no tensor, from the first rank that has it.
void Trainer::adopt(StepRunner& fresh, bool holds, std::span<const Stand> stands) {
  const auto said = meeting_over(*comm_).gather(
      holds ? progress_.bytes() + runner_->small_state() : "");
  int first = 0;
  while (!decide(stands, first).holds) ++first;
  const auto lost = progress_.lost;
  progress_ = Progress::of(said[first]);
  if (lost && progress_.lost) progress_.lost = std::min(*lost, *progress_.lost);
  keeper_.pin(progress_.known_good);
  fresh.set_small_state(said[first].substr(sizeof(Progress)));
}

}  // namespace cohort
