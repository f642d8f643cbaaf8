// SPDX-License-Identifier: Apache-2.0
// Replicas that drifted apart: a flipped bit, a kernel that is not deterministic.
#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/train/trainer.h"

namespace cohort {

// An elastic run goes on; any other has no agent that keeps a good state. The history
// has such a step with the hash of its weights, so it is noted only here; whichever
// rank is lost before that leaves it to the next world.
void Trainer::compare_replicas() {
  const ReplicaReport found = runner_->compare_replicas();
  if (found.what.empty()) {
    // Equal is not sound: the same bit may have flipped on all.
    require_sound(*runner_);
    if (!options_.history.empty())
      recorder_.compared(state_.committed, runner_->weights_hash());
    facts_.known_good = state_.committed;
    backup_.pin(facts_.known_good);
    return;
  }
  const std::string line =
      text("step ", state_.committed, ": replicas drifted apart: ", found.what);
  if (!options_.elastic) throw Error(ErrorKind::kBug, "[engine] " + line);
  reach("train.drifted");
  backup_.forget_after(facts_.known_good);
  // What the odd ones computed since is in everyone's weights: an exact run makes those
  // steps again, if it can.
  const bool mended = options_.step.exact ? go_back(line) || heal(line, found)
                                          : heal(line, found) || go_back(line);
  if (!mended) throw Error(ErrorKind::kBug, "[engine] " + line);
}

// From those that are the most. False, and nothing has changed, if it is unknown which
// is right, or nobody else has what the odd ones hold.
bool Trainer::heal(const std::string& line, const ReplicaReport& found) {
  if (found.odd.empty()) return false;
  const bool odd =
      std::find(found.odd.begin(), found.odd.end(), comm_->rank()) != found.odd.end();
  const auto held = runner_->state(Holding::kHeld);
  // Until it has the others' state an odd rank has none that anybody may clone.
  const int64_t steps = odd ? std::exchange(state_.committed, -1) : state_.committed;
  reach("train.heal");
  const std::string lost =
      exchange_state(*comm_, odd ? std::vector<StatePiece>{} : held, held);
  if (lost.empty()) {
    reach("train.healed");
    runner_->refresh();
  }
  state_.committed = steps;
  if (!lost.empty()) return false;
  recorder_.healed(state_.committed);
  recorder_.note(line + "; healed from the others");
  return true;
}

// To the last state that was equal everywhere. Before the first byte of the state is
// replaced this rank says that it has none, and that nobody has a good one of later
// steps: whichever rank is lost meanwhile, the next world hears both.
bool Trainer::go_back(const std::string& why) {
  recorder_.note(why);
  state_.sound_until = facts_.known_good;
  const int64_t before = std::exchange(state_.committed, -1);
  reach("train.go_back");
  const auto saved = backup_.restore(facts_.known_good);
  state_.sound_until = StateReport::kAll;
  state_.committed = saved ? saved->step : before;
  if (!saved) return false;
  reach("train.went_back");
  facts_.skipped = false;
  recorder_.rolled_back(before, state_.committed, why);
  return true;
}

// Only what the others say tells a slow rank from a long step.
void Trainer::look_for_slow_rank() {
  constexpr int64_t kWindow = 50;
  if (comm_->size() == 1 || state_.committed % kWindow != 0) return;
  const auto line = lateness_.look(*comm_, runner_->take_waits());
  if (line) recorder_.note(*line);
}

}  // namespace cohort
