// SPDX-License-Identifier: Apache-2.0
// The agent's part in a run of several nodes.
#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/process.h"
#include "cohort/launch/agent_loop.h"

namespace cohort::process {

// Tells the other nodes what happened here, and hears what happened there.
void Agent::watch_rendezvous(FixedRanks& ranks) {
  if (Clock::now() < next_look_ && !ranks.done()) return;
  next_look_ = Clock::now() + kRendezvousInterval;
  for (const std::string& notice : rendezvous_->notices()) say(notice);
  if (event_) return;
  try {
    std::optional<AgentEvent> event;
    if (!zygote_.alive()) {
      event = AgentEvent{AgentEvent::kFault, zygote_failure()};
    } else if (result_.stop_signal) {
      event = AgentEvent{AgentEvent::kStop, {}};
      event->failure.signal = result_.stop_signal;
    } else if (ranks.any_failed() && ranks.done()) {
      event = AgentEvent{AgentEvent::kFault, ranks.failures()[0]};
    } else if (ranks.any_failed()) {
      event = AgentEvent{AgentEvent::kFault, ranks.first_failure()};
    }
    event_ = event ? rendezvous_->publish(generation_, *event)
                   : rendezvous_->poll(generation_);
  } catch (const CommError& error) {
    event_ = AgentEvent{};
    event_->failure.host = host_name();
    event_->failure.exit_code = kExitLostPeer;
    event_->failure.message =
        text("the agents' store at ", options_.rdzv, " is lost: ", error.what());
  }
  if (event_) on_event(*event_, ranks);
}

void Agent::on_event(const AgentEvent& event, FixedRanks& ranks) {
  if (event.kind == AgentEvent::kStop && !result_.stop_signal) {
    result_.stop_signal = event.failure.signal;
    say(text(signal_name(event.failure.signal), " to another node: stopping ",
             ranks.running(), " ranks"));
  }
  if (!ranks.stopping()) {
    ranks.stop(event.kind == AgentEvent::kStop ? event.failure.signal : SIGTERM);
  }
}

// A node whose ranks are done keeps the others company: they may still fail, and its
// store may be theirs.
void Agent::wait_for_other_nodes(FixedRanks& ranks) {
  watch_rendezvous(ranks);
  try {
    const std::string done = text("done/", generation_);
    if (!event_) rendezvous_->arrive(done);
    while (!event_ && !rendezvous_->all_arrived(done)) {
      wait(&ranks);
      watch_rendezvous(ranks);
    }
  } catch (const CommError& error) {
    say(text("the agents' store at ", options_.rdzv, " is lost: ", error.what()));
  }
}

// No rank of a new generation starts while one of the old still runs anywhere, nor
// finds anything of it in its store.
bool Agent::agree_to_restart() {
  ++generation_;
  if (!rendezvous_) {
    store_ = std::make_unique<StoreServer>();
    plan_.world.master_port = store_->port();
    return true;
  }
  const std::string ready = text("ready/", generation_);
  const auto deadline = Clock::now() + options_.grace + std::chrono::seconds(20);
  try {
    rendezvous_->arrive(ready);
    while (!rendezvous_->all_arrived(ready)) {
      next_look_ = Clock::now() + kRendezvousInterval;
      wait(nullptr);
      if (result_.stop_signal || !zygote_.alive()) return false;
      if (Clock::now() < deadline) continue;
      say("other nodes did not come to the restart");
      return false;
    }
    plan_.world.master_port = rendezvous_->renew_store(generation_);
    return true;
  } catch (const CommError& error) {
    say(error.what());
    return false;
  }
}

}  // namespace cohort::process
