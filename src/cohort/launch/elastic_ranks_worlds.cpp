// SPDX-License-Identifier: Apache-2.0
// Which ranks are in the next world of an elastic run: after a loss, and when a run
// grows or shrinks.
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/launch/cores.h"
#include "cohort/launch/elastic_ranks.h"
#include "cohort/launch/launch_setup.h"

namespace cohort::process {

// The next world. A process that has no seat in it leaves: what waits in its stead is a
// spare, without the state of a world that is over.
void ElasticRanks::open(const std::vector<int>& seats) {
  stores_.close(world_of(0));
  ++generation_;
  const int size = static_cast<int>(seats.size());
  plan_.world.local_size = plan_.world.world_size = size;
  plan_.world.master_port = stores_.open();
  auto before = std::exchange(seats_, std::vector<Seat>(size));
  for (int r = 0; r < size; ++r) {
    if (seats[r] < 0) continue;
    seats_[r] = std::exchange(before[seats[r]], Seat{});
    if (seats[r] != r) processes_.at(seats_[r].index)->become(r);
  }
  for (const Seat& left : before) {
    if (left.index >= 0) dismiss(left.index, elastic_.detect);
  }
  for (int r = 0; r < size; ++r) {
    if (seats_[r].index < 0) fill(r);
    Member& member = members_.at(seats_[r].index);
    member.reported = false;
    tell_stop(member);
    member.link.send(LinkMessage::kWorld, generation_, encode(world_of(r)));
  }
  broken_.reset();
  life_.on(ElasticEvent::kWorldOpened);
  spare_plan_.start_later(Clock::now());
}

void ElasticRanks::fill(int local_rank) {
  Seat& seat = seats_[local_rank];
  seat = Seat{take_spare(), std::nullopt, false};
  if (seat.index < 0) {
    seat.index = fork(local_rank);
  } else {
    processes_.at(seat.index)->become(local_rank);
  }
  spare_plan_.lose_one();
}

// One that waits already, else one that will: it has a start over a new one.
int ElasticRanks::take_spare() {
  int found = -1;
  for (const auto& [index, member] : members_) {
    const RankProcess& process = *processes_.at(index);
    if (!process.is_spare() || member.leaving || process.given_up()) continue;
    if (member.ready) return index;
    if (found < 0) found = index;
  }
  return found;
}

int ElasticRanks::spares() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
        const RankProcess& process = *processes_.at(entry.first);
        return process.is_spare() && !entry.second.leaving && !process.given_up();
      }));
}

void ElasticRanks::fork_spares() {
  spare_plan_.started();
  stores_.prepare();
  if (!life_.allows(ElasticEvent::kSpareWanted) || spare_plan_.is_given_up()) return;
  for (int n = spares(); n < spare_plan_.count(); ++n) fork(-1);
}

std::vector<bool> ElasticRanks::living() const {
  std::vector<bool> lives;
  for (const Seat& seat : seats_) lives.push_back(seat.index >= 0);
  return lives;
}

// Those that live, and spares that wait or are about to be started.
int ElasticRanks::left() const {
  return static_cast<int>(std::ranges::count(living(), true)) + spare_plan_.count();
}

// Empty: there is not even one team.
std::vector<int> ElasticRanks::seats_after_loss() const {
  const int each = elastic_.team.ranks();
  const int teams = static_cast<int>(seats_.size()) / each;
  return seat(living(), elastic_.replace ? teams : std::min(teams, left() / each),
              elastic_.team);
}

// Those that make no team are spares from here on.
void ElasticRanks::keep_the_rest_waiting(const std::vector<int>& seats) {
  const auto seated = std::ranges::count_if(seats, [](int seat) { return seat >= 0; });
  const auto rest = std::ranges::count(living(), true) - seated;
  spare_plan_.set_waiting(spare_plan_.counts().waiting + static_cast<int>(rest));
}

std::string ElasticRanks::words_of_waiting() const {
  const int waiting = spare_plan_.counts().waiting;
  if (waiting == 0) return "";
  return text(", ", waiting, waiting == 1 ? " waits" : " wait");
}

std::string ElasticRanks::resize(int ranks) {
  const int before = static_cast<int>(seats_.size());
  const int most = most_ranks(elastic_);
  if (ranks < elastic_.min_ranks || ranks > most) {
    throw ConfigError(text("[resize] ", ranks, " ranks; legal for this run: ",
                           elastic_.min_ranks, " to ", most));
  }
  if (!life_.allows(ElasticEvent::kResizeAsked) || !dead_.empty()) {
    throw ConfigError("[resize] the run is ending; legal: a run that goes on");
  }
  const int rest = ranks % elastic_.team.ranks(), next = ranks - rest;
  goal_.drop();
  if (next != before) {
    goal_.set(next);
    move_towards_goal(Clock::now());
  }
  spare_plan_.set_waiting(rest);
  spare_plan_.start_soon(Clock::now());
  if (next == before)
    return text("the run has ", next, " ranks already", words_of_waiting());
  return text("from ", before, " to ", next, " ranks, in generation ", generation_,
              words_of_waiting());
}

void ElasticRanks::move_towards_goal(Clock::time_point now) {
  if (!life_.allows(ElasticEvent::kResizeAsked) || !dead_.empty()) return;
  const int before = static_cast<int>(seats_.size());
  const bool committed = progress_page_.generation() >= generation_;
  const auto ranks = goal_.next(before, committed, now);
  if (!ranks) return;
  prepare_resize(plan_, *ranks);
  const SparePlan::Counts asked = spare_plan_.counts();
  open(seat(living(), *ranks / elastic_.team.ranks(), elastic_.team));
  spare_plan_.set_counts(asked);  // nobody is lost
  pin_all();
  note(text("opened generation ", generation_, " with ", *ranks, " ranks, not ", before,
            ", on request"));
}

void ElasticRanks::pin_all() {
  if (!plan_.options.pin) return;
  for (const Seat& seat : seats_) {
    RankProcess& process = *processes_.at(seat.index);
    process.pin(plan_.cores.empty() ? allowed_cores()
                                    : plan_.cores[process.local_rank()]);
  }
}

}  // namespace cohort::process
