// SPDX-License-Identifier: Apache-2.0
// What the ranks's agent and its processes say to one another.
#include "cohort/core/error.h"
#include "cohort/launch/elastic_ranks.h"

namespace cohort::process {

void ElasticRanks::read_link(int index, Member& member) {
  while (auto message = member.link.receive()) handle(index, member, *message);
}

void ElasticRanks::handle(int index, Member& member, LinkMessage& message) {
  switch (message.kind) {
    case LinkMessage::kWaiting:
      member.ready = true;
      spare_plan_.arrived();
      break;
    case LinkMessage::kTaken:
      member.taken = true;
      break;
    case LinkMessage::kFinish:
      if (message.generation == generation_ && !processes_.at(index)->ended()) {
        promise_no_world(member);
      }
      break;
    case LinkMessage::kLost:
      if (message.generation != generation_ || member.leaving ||
          processes_.at(index)->ended()) {
        break;
      }
      member.reported = true;
      if (!broken_) {
        break_world(
            text("rank ", processes_.at(index)->local_rank(), ": ", message.text));
      }
      break;
    case LinkMessage::kHold:
      if (message.fd) held_[message.text] = std::move(message.fd);
      break;
    case LinkMessage::kNextHeld:
      answer_held(member, message.text);
      break;
    default:
      break;
  }
}

// Not while this world is being given up: the next one is on its way then.
void ElasticRanks::promise_no_world(const Member& member) {
  if (broken_ || !dead_.empty()) return;
  life_.on(ElasticEvent::kEndPromised);
  dismiss_spares();
  member.link.send(LinkMessage::kFinished, generation_);
}

// The others give it up as well: one that does not is what they wait for.
void ElasticRanks::break_world(const std::string& why) {
  broken_ = WorldBreak{Clock::now(), why};
  for (const Seat& seat : seats_) {
    if (seat.index < 0 || members_.at(seat.index).reported) continue;
    members_.at(seat.index).link.send(LinkMessage::kBroken, generation_, why);
  }
  stores_.close(world_of(0));
}

void ElasticRanks::answer_held(const Member& member, const std::string& name) const {
  const auto next = held_.upper_bound(name);
  if (next == held_.end()) {
    member.link.send(LinkMessage::kHeld, generation_);
  } else {
    member.link.send(LinkMessage::kHeld, generation_, next->first, next->second.get());
  }
}

// One that is still on its way to where it could wait has nothing to lose.
void ElasticRanks::dismiss_spares() {
  for (const auto& [index, member] : members_) {
    if (!processes_.at(index)->is_spare() || member.leaving) continue;
    dismiss(index, plan_.options.grace);
    if (!member.ready) processes_.at(index)->give_up("the run does not need it");
  }
}

void ElasticRanks::dismiss(int index, std::chrono::milliseconds limit) {
  Member& member = members_.at(index);
  member.leaving = true;
  member.leave_by = Clock::now() + limit;
  processes_.at(index)->ask_to_end();
  member.link.send(LinkMessage::kDismissed, generation_);
}

void ElasticRanks::tell_stop(const Member& member) const {
  if (stop_signal_ == 0) return;
  member.link.send(LinkMessage::kStop, generation_, std::to_string(stop_signal_));
}

void ElasticRanks::tell_end(const std::string& why) const {
  for (const auto& [index, member] : members_) {
    member.link.send(LinkMessage::kRunEnds, generation_, why);
  }
}

}  // namespace cohort::process
