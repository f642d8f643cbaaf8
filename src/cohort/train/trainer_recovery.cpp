// SPDX-License-Identifier: Apache-2.0
// How a world begins: which step it goes on from, and where its ranks get the state.
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <sstream>
#include <utility>

#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/train/trainer.h"

namespace cohort {

Stand Trainer::stand() const {
  if (!runner_ || committed_ < 0) return {};
  return {.committed = committed_, .flight = runner_->standing(), .skipped = skipped_};
}

// What ran in the world before stays until the state is in `fresh`: if this world too
// is lost meanwhile, the next one finds it there.
void Trainer::settle(StepRunner& fresh, std::span<const Stand> stands) {
  const std::string lost = take_from_peers(fresh, stands);
  if (!lost.empty()) take_from_keeper(lost);
  begin_history(lost);
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
  if (is_new && reporter_) speak_of_last_step();
  return "";
}

// Which the lost rank 0 may have left to be spoken of.
void Trainer::speak_of_last_step() {
  done_.steps = committed_;
  if (committed_ == 0 || was_reported(committed_)) return;
  done_.epoch = sampler_.position(committed_ - 1).epoch + 1;
  reporter_->step({.step = committed_,
                   .epoch = done_.epoch,
                   .loss = done_.loss,
                   .rate = rate_.at(committed_ - 1),
                   .samples_per_second = speed_.recent()});
}

void Trainer::take_from_keeper(const std::string& why) {
  const auto saved = keeper_.restore();
  if (!saved && committed_ >= 0)
    throw CheckpointError(
        text("[train] ", why, ", and nothing is saved to go back to"));
  committed_ = known_good_ = saved ? saved->step : 0;
  skipped_ = false;
  validated_ = committed_ / sampler_.steps_per_epoch();
  if (saved) return;
  if (reporter_ && comm_->generation() > 0)
    reporter_->note(
        text("[train] ", why, ", and nothing is saved: the run starts again"));
  keeper_.start(run_state());
}

RunState Trainer::run_state() const {
  RunState run{.step = committed_};
  run.metrics["loss"] = done_.loss;
  if (done_.accuracy) run.metrics["accuracy"] = *done_.accuracy;
  return run;
}

// What belongs to the run and is no tensor, from the first rank that has it.
void Trainer::adopt(StepRunner& fresh, bool holds, std::span<const Stand> stands) {
  std::ostringstream mine;
  mine.precision(17);
  const auto lost = lost_ ? lost_->time_since_epoch().count() : 0;
  if (holds)
    mine << known_good_ << ' ' << validated_ << ' ' << stopping_ << ' ' << skipped_
         << ' ' << lost << ' ' << std::bit_cast<int64_t>(done_.loss) << ' '
         << done_.accuracy.value_or(-1) << ' ' << done_.first_step_s << '\n'
         << runner_->small_state();
  const auto said = meeting_over(*comm_).gather(mine.str());
  int first = 0;
  while (!decide(stands, first).holds) ++first;
  std::istringstream in(said[first]);
  int64_t lost_there = 0;
  int64_t loss_bits = 0;  // it may be no number, which a stream cannot read
  double accuracy = -1;
  in >> known_good_ >> validated_ >> stopping_ >> skipped_ >> lost_there >> loss_bits >>
      accuracy >> done_.first_step_s;
  done_.loss = std::bit_cast<double>(loss_bits);
  if (accuracy >= 0) done_.accuracy = accuracy;
  keeper_.pin(known_good_);
  const std::chrono::steady_clock::time_point there{
      std::chrono::steady_clock::duration(lost_there)};
  if (lost_there > 0 && lost_) lost_ = std::min(*lost_, there);
  std::string small;
  std::getline(in >> std::ws, small);
  fresh.set_small_state(small);
}

// All that is known of a step is in the history before anybody hears of it.
void Trainer::begin_history(const std::string& why) {
  if (!reporter_ || options_.history.empty()) return;
  const bool fresh = comm_->generation() == 0 && !options_.keep.resume;
  if (fresh) std::filesystem::remove(options_.history);  // of another run
  const auto started = std::chrono::duration_cast<std::chrono::microseconds>(
      options_.started.time_since_epoch());
  history_ = std::make_unique<History>(options_.history,
                                       HistoryRun{.seed = options_.seed,
                                                  .samples = train_.size(),
                                                  .batch = options_.batch,
                                                  .slices = options_.slices,
                                                  .exact = options_.step.exact},
                                       options_.backlog);
  history_->begin({.started_us = started.count(),
                   .generation = comm_->generation(),
                   .ranks = comm_->size(),
                   .committed = committed_,
                   .layout = options_.layout.text()},
                  why);
}

// A step that is made again after a rollback, or that another process has spoken of
// before it died. Noted first: rather not at all than twice.
bool Trainer::was_reported(int64_t step) {
  if (!options_.membership) return false;
  const bool before = step <= options_.membership->committed_before();
  options_.membership->committed(step);
  return before;
}

void Trainer::report_recovery() {
  const auto lost = std::exchange(lost_, std::nullopt);
  if (comm_->generation() == 0 || !lost) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - *lost;
  reporter_->recovered({.generation = comm_->generation(),
                        .ranks = comm_->size(),
                        .seconds = took.count()});
}

}  // namespace cohort
