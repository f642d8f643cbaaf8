// SPDX-License-Identifier: Apache-2.0
// How a world begins: which step it goes on from, and where its ranks get the state.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/comm/gather_records.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/train/trainer.h"

namespace cohort {
namespace {

bool is_one_of(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

StateReport Trainer::report() const {
  StateReport report{.begun = state_.begun,
                     .known_good = facts_.known_good,
                     .sound_until = state_.sound_until};
  if (!runner_ || state_.committed < 0 || !runner_->damage().empty()) return report;
  report.committed = state_.committed;
  report.flight = runner_->vote_state();
  report.skipped = facts_.skipped;
  return report;
}

// What ran in the world before stays until the state is in `fresh`: if this world too
// is lost meanwhile, the next one finds it there.
void Trainer::settle(std::unique_ptr<StepRunner> fresh,
                     std::span<const StateReport> reports) {
  state_.sound_until =
      sound_until(reports);  // what one rank knows all know from here on
  const std::string lost = take_from_peers(fresh, reports);
  const bool damaged = state_.sound_until != StateReport::kAll;
  if (!lost.empty()) take_from_backup(std::move(fresh), lost, reports);
  reach("train.settled");
  recorder_.begin(state_.committed, lost, damaged);
  // The rank that was to tell of a validation may be lost, and what is kept of a run
  // does not have its outcome: it is then made once more.
  if (const auto told = recorder_.validation_told())
    facts_.validated = lost.empty() ? std::min(facts_.validated, *told) : 0;
}

// The state is whole: from this instant on it is what this rank has.
void Trainer::hold(std::unique_ptr<StepRunner> fresh, int64_t steps) {
  runner_ = std::move(fresh);
  part_.retired = {};
  state_.committed = steps;
  pace_ = {};
  state_.begun = true;
  state_.sound_until = StateReport::kAll;
}

// Takes `fresh`, or returns why that cannot be, on all ranks alike.
std::string Trainer::take_from_peers(std::unique_ptr<StepRunner>& fresh,
                                     std::span<const StateReport> reports) {
  const Decision decision = decide(reports, comm_->rank());
  if (decision.committed < 0)
    return state_.sound_until == StateReport::kAll
               ? "no rank has the state"
               : text("what ranks hold of steps after ", state_.sound_until,
                      " is damaged");
  if (decision.finishes) conclude(runner_->finish(decision.skip), 0);
  std::vector<StatePiece> have;
  if (decision.holds) have = runner_->state(Holding::kHeld);
  reach("train.compare_held");
  const ReplicaReport found = compare_held(*comm_, have);
  if (!found.what.empty()) {
    const auto line =
        text("step ", decision.committed, ": replicas drifted apart: ", found.what);
    recorder_.note(line);
    // What the odd ones computed is in everyone's weights: see compare_replicas().
    if (options_.step.exact || found.odd.empty()) {
      state_.sound_until = known_good(reports);
      return line;
    }
    if (is_one_of(found.odd, comm_->rank())) have.clear();
  }
  reach("train.exchange");
  const std::string lost = exchange_state(*comm_, have, fresh->state(Holding::kHeld));
  if (!lost.empty()) return lost;
  adopt(*fresh, reports, found.odd);
  reach("train.adopted");
  fresh->refresh();
  const bool gains =
      state_.committed < decision.committed;  // steps that others have made
  hold(std::move(fresh), decision.committed);
  if (gains) recorder_.catch_up(state_.committed, facts_.loss.value_or(std::nan("")));
  return "";
}

void Trainer::take_from_backup(std::unique_ptr<StepRunner> fresh,
                               const std::string& why,
                               std::span<const StateReport> reports) {
  if (state_.sound_until != StateReport::kAll) backup_.forget_after(state_.sound_until);
  reach("train.restore", comm_->generation());
  const auto saved = backup_.restore(state_.sound_until);
  if (!saved && any_begun(reports)) {
    const auto line = text("[train] ", why, ", and nothing is saved to go back to");
    if (decide(reports, comm_->rank()).committed == 0) throw FirstStateLost(line);
    throw CheckpointError(line);
  }
  hold(std::move(fresh), saved ? saved->step : 0);
  facts_.known_good = state_.committed;
  facts_.skipped = false;
  facts_.validated = state_.committed / sampler_.steps_per_epoch();
  backup_.pin(state_.committed);
  backup_.start(run_state());
  if (!saved && comm_->generation() > 0)
    recorder_.note(
        text("[train] ", why, ", and nothing is saved: the run starts again"));
}

RunState Trainer::run_state() const {
  RunState run{.step = state_.committed};
  if (facts_.loss) run.metrics["loss"] = *facts_.loss;
  if (facts_.accuracy) run.metrics["accuracy"] = *facts_.accuracy;
  return run;
}

// What belongs to the run and is no tensor, from the first rank that has it.
void Trainer::adopt(StepRunner& fresh, std::span<const StateReport> reports,
                    const std::vector<int>& odd) {
  int first = 0;
  while (!decide(reports, first).holds || is_one_of(odd, first)) ++first;
  using Said = std::pair<RunFacts, std::string>;  // and the small state
  const auto said = gather_records(
      text_exchange(*comm_),
      first == comm_->rank() ? Said(facts_, runner_->small_state()) : Said(),
      "[train] a peer's facts cannot be read");
  const auto lost = facts_.lost;
  facts_ = said[first].first;
  if (lost && facts_.lost) facts_.lost = std::min(*lost, *facts_.lost);
  backup_.pin(facts_.known_good);
  fresh.set_small_state(said[first].second);
}

}  // namespace cohort
