// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/crew.h"

#include <sys/wait.h>

#include <algorithm>

#include "cohort/comm/join.h"
#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/process.h"
#include "cohort/launch/cores.h"
#include "cohort/launch/preparation.h"

namespace cohort::process {
namespace {

// A spare loads what a rank does. It starts when the ranks have had time for that.
constexpr std::chrono::milliseconds kSpareDelay{500};
constexpr int kMostSpareDeaths = 3;
// Between two looks for progress, while ranks are to leave one after another.
constexpr std::chrono::milliseconds kLookAtBoard{20};
constexpr size_t kMostClosedStores = 8;

}  // namespace

Crew::Crew(RankPlan& plan, Zygote& zygote, Sink& out, Sink& err,
           std::unique_ptr<StoreServer> store)
    : RankGroup(plan, zygote, out, err, plan.options.elastic.detect),
      plan_(plan),
      elastic_(plan.options.elastic),
      budget_(plan.options.max_restarts),
      store_(std::move(store)) {}

void Crew::start() {
  places_.resize(plan_.options.ranks);
  for (int r = 0; r < plan_.options.ranks; ++r) places_[r].index = fork(r);
  next_store_ = std::make_unique<StoreServer>();
  spares_at_ = Clock::now() + kSpareDelay;
}

// A rank of the first generation finds its world in the environment, as that of any
// launcher; all others, in their first message.
int Crew::fork(int local_rank) {
  const int index = next_index_++;
  RankProcess& process = add(index, local_rank);
  auto [ours, theirs] = AgentLink::make_pair();
  ours.send(LinkMessage::kBoard, generation_, {}, board_.fd());
  SpawnText spawn;
  if (local_rank >= 0 && generation_ == 0) {
    spawn.variables = rank_variables(
        plan_.world, local_rank, {0, plan_.options.max_restarts}, process.error_path());
  } else {
    spawn.variables = {text("COHORT_SPARE=", 1),
                       "TORCHELASTIC_ERROR_FILE=" + process.error_path()};
  }
  RankGroup::start(process, std::move(spawn), theirs.fd());
  members_.emplace(index, Member{std::move(ours), local_rank >= 0 && generation_ == 0});
  return index;
}

// Frees those who wait in the store of a world that is over: by its end, or, where
// someone may still come to it, by a word in it.
void Crew::close_store() {
  if (store_ && close_world(world_of(0), *store_, "[elastic] this world is over")) {
    closed_stores_.push_back(std::move(store_));
    if (closed_stores_.size() > kMostClosedStores) closed_stores_.pop_front();
  }
  store_.reset();
}

// The next world.
void Crew::open(int size) {
  close_store();
  ++generation_;
  store_ = next_store_ ? std::move(next_store_) : std::make_unique<StoreServer>();
  plan_.world.local_size = plan_.world.world_size = size;
  plan_.world.master_port = store_->port();
  for (int r = size; r < static_cast<int>(places_.size()); ++r) {
    if (places_[r].index >= 0) dismiss(places_[r].index, elastic_.detect);
  }
  places_.resize(size);
  for (int r = 0; r < size; ++r) {
    if (places_[r].index < 0) fill(r);
    Member& member = members_.at(places_[r].index);
    member.reported = false;
    tell_stop(member);
    member.link.send(LinkMessage::kWorld, generation_, encode(world_of(r)));
  }
  lost_since_.reset();
  finishing_ = false;
  spares_at_ = Clock::now() + kSpareDelay;
}

void Crew::fill(int local_rank) {
  Place& place = places_[local_rank];
  place = Place{take_spare(), std::nullopt, false};
  if (place.index < 0) {
    place.index = fork(local_rank);
  } else {
    processes_.at(place.index)->become(local_rank);
  }
}

// One that waits already, else one that will: it has a start over a new one.
int Crew::take_spare() {
  int found = -1;
  for (const auto& [index, member] : members_) {
    const RankProcess& process = *processes_.at(index);
    if (!process.is_spare() || member.leaving || process.given_up()) continue;
    if (member.ready) return index;
    if (found < 0) found = index;
  }
  return found;
}

void Crew::fork_spares() {
  spares_at_ = Clock::time_point::max();
  if (!next_store_) next_store_ = std::make_unique<StoreServer>();
  if (stopping() || finishing_ || spare_deaths_ >= kMostSpareDeaths) return;
  const auto spares =
      std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
        return processes_.at(entry.first)->is_spare() && !entry.second.leaving;
      });
  for (auto n = spares; n < elastic_.spares; ++n) fork(-1);
}

World Crew::world_of(int local_rank) const {
  World world;
  world.rank = world.local_rank = local_rank;
  world.size = world.local_size = static_cast<int>(places_.size());
  world.generation = generation_;
  world.master_addr = plan_.world.master_addr;
  world.master_port = plan_.world.master_port;
  world.token = plan_.world.token;
  world.launcher = "cohort";
  return world;
}

void Crew::add_polls(std::vector<pollfd>& polls) const {
  RankGroup::add_polls(polls);
  for (const auto& [index, member] : members_) {
    if (member.link.open()) polls.push_back({member.link.fd(), POLLIN, 0});
  }
}

Clock::time_point Crew::next_deadline() const {
  Clock::time_point next = std::min(RankGroup::next_deadline(), spares_at_);
  if (lost_since_) next = std::min(next, *lost_since_ + elastic_.detect);
  if (goal_) next = std::min(next, Clock::now() + kLookAtBoard);
  for (const auto& [index, member] : members_) next = std::min(next, member.leave_by);
  return next;
}

void Crew::advance() {
  RankGroup::advance();
  const auto now = Clock::now();
  for (auto& [index, member] : members_) {
    read_link(index, member);
    if (now < member.leave_by) continue;
    member.leave_by = Clock::time_point::max();
    processes_.at(index)->give_up("it did not leave when it was told to");
  }
  end_the_silent(now);
  settle();
  move_towards_goal(now);
  if (now >= spares_at_) fork_spares();
  forget_ended();
}

void Crew::on_end(RankProcess& process) {
  auto member = members_.extract(process.index());
  if (member.empty()) return;
  read_link(process.index(), member.mapped());  // its last words
  if (member.mapped().leaving) return;
  if (process.is_spare()) return on_spare_end(process, member.mapped());
  Place& place = places_[process.local_rank()];
  place = Place{-1, process.status(), ended_well(process)};
  if (process.local_rank() == 0 && !is_last_word(process)) finished_ = false;
  if (place.ended_well) {
    finishing_ = true;
    dismiss_spares();
  } else if (ending_ || ended_by_request(process)) {
    if (!ending_ && WIFEXITED(process.status()))
      note(text(process.name(), " failed: ", describe_cause(process.failure())));
    ending_ = true;
    tell_end("a rank was lost while the run was being stopped");
    close_store();  // someone may wait in it for the one that is lost
  } else if (finished() && (process.killed_from_outside() || process.given_up())) {
    note(text(process.name(), " failed: ", describe_cause(process.failure()),
              "; the run was done"));
    if (!lost_since_) break_world(process.name() + " died");
  } else {
    dead_.push_back(process.failure());
  }
}

bool Crew::ended_well(const RankProcess& process) const {
  return process.is_fine() || (stopping() && WIFEXITED(process.status()) &&
                               process.code() == 128 + stop_signal_);
}

// It had nothing to save yet, or could not: another one would do no better.
bool Crew::ended_by_request(const RankProcess& process) const {
  if (!stopping() || process.given_up()) return false;
  return WIFSIGNALED(process.status()) ? !process.killed_by_others()
                                       : process.code() == kExitCheckpoint;
}

// One that is on its way to its first world hears of a stop by its link.
bool Crew::hears(const RankProcess& process) const {
  const auto member = members_.find(process.index());
  return !process.is_spare() && member != members_.end() && member->second.ready;
}

// It has said that the run is done, and then what of it could not be written or saved.
bool Crew::is_last_word(const RankProcess& process) const {
  return finished_ && WIFEXITED(process.status()) &&
         (process.code() == kExitData || process.code() == kExitCheckpoint);
}

// Nothing is lost with it but time.
void Crew::on_spare_end(RankProcess& process, const Member& member) {
  if (stopping() || finishing_) return;
  Failure failure = process.failure();
  failure.rank = 0;  // or there would be no cause
  note(text(process.name(), " failed: ", describe_cause(failure)));
  if (!member.ready && ++spare_deaths_ == kMostSpareDeaths)
    note("there are no more spares");
  spares_at_ = Clock::now() + kSpareDelay;
}

// What the deaths and complaints since the last call come to.
void Crew::settle() {
  if (ending_) dead_.clear();
  if (lost_since_ && finished()) {
    for (Place& place : places_) {  // there is nobody to go on with
      if (place.index < 0 || !members_.at(place.index).reported) continue;
      dismiss(place.index, plan_.options.grace);
      place = Place{-1, 0, true};
    }
    lost_since_.reset();
  }
  if (!dead_.empty()) {
    recover(std::exchange(dead_, {}));
  } else if (!ending_ && lost_since_ && all_reported()) {
    Failure group;
    group.exit_code = kExitLostPeer;
    group.host = host_name();
    group.message = "all ranks lost one another: " + lost_why_;
    recover({group});
  }
  if (stopping() && running() == 0) dismiss_spares();
}

void Crew::recover(const std::vector<Failure>& dead) {
  if (finished()) return give_up(dead.front(), "");
  RestartBudget::Progress made{.highest = board_.highest()};
  for (size_t rank = 0; rank < places_.size(); ++rank)
    made.now = std::max(made.now, board_.committed(static_cast<int>(rank)));
  if (const auto refusal = budget_.spend(dead, made)) {
    return give_up(refusal->cause, refusal->why);
  }
  faults_.insert(faults_.end(), dead.begin(), dead.end());
  open(static_cast<int>(places_.size()));
  note(text("opened generation ", generation_, " with ", places_.size(),
            " ranks (restart ", budget_.used(), " of ", plan_.options.max_restarts,
            ")"));
}

void Crew::give_up(const Failure& cause, const std::string& why) {
  cause_ = cause;
  faults_.push_back(cause);
  if (!why.empty()) {
    note(cause.rank < 0 ? text("no recovery: ", why)
                        : text("no recovery of rank ", cause.rank, ": ", why));
  }
  ending_ = true;
  tell_end(describe_cause(cause));
  dismiss_spares();
  stop(SIGTERM);
}

// A rank waits for another one that shows no sign of life, though it is not dead.
void Crew::end_the_silent(Clock::time_point now) {
  if (!lost_since_ || ending_ || now < *lost_since_ + elastic_.detect) return;
  if (all_reported()) return;
  for (const Place& place : places_) {
    if (place.index < 0 || members_.at(place.index).reported) continue;
    processes_.at(place.index)
        ->give_up(text("it kept the others waiting for ",
                       elastic_.detect.count() / 1000.0, " s, so it was killed (",
                       lost_why_, ")"));
  }
  lost_since_.reset();
}

bool Crew::all_reported() const {
  return std::all_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.index < 0 || members_.at(place.index).reported;
  });
}

std::string Crew::resize(int ranks) {
  const int before = static_cast<int>(places_.size());
  const int most = most_ranks(elastic_);
  if (ranks < elastic_.min_ranks || ranks > most) {
    throw ConfigError(text("[resize] ", ranks, " ranks; legal for this run: ",
                           elastic_.min_ranks, " to ", most));
  }
  if (stopping() || finishing_ || !dead_.empty()) {
    throw ConfigError("[resize] the run is ending; legal: a run that goes on");
  }
  if (ranks == before) return text("the run has ", ranks, " ranks already");
  goal_ = ranks;
  last_leave_.reset();
  move_towards_goal(Clock::now());
  return text("from ", before, " to ", ranks, " ranks, in generation ", generation_);
}

// One rank leaves at a time, after a step that was committed in the world without the
// one before it: what each held has found another holder by then.
void Crew::move_towards_goal(Clock::time_point now) {
  if (!goal_ || stopping() || finishing_ || !dead_.empty()) return;
  const int before = static_cast<int>(places_.size());
  const bool shrinks = *goal_ < before;
  const bool waits = shrinks && last_leave_ && board_.generation() < generation_ &&
                     now < *last_leave_ + elastic_.detect;
  if (waits) return;
  last_leave_ = now;
  const int ranks = shrinks ? before - 1 : *goal_;
  if (ranks == *goal_) goal_.reset();
  prepare_resize(plan_, ranks);
  open(ranks);
  for (const Place& place : places_) {
    const int r = processes_.at(place.index)->local_rank();
    if (plan_.options.pin) {
      processes_.at(place.index)
          ->pin(plan_.cores.empty() ? allowed_cores() : plan_.cores[r]);
    }
  }
  note(text("opened generation ", generation_, " with ", ranks, " ranks, not ", before,
            ", on request"));
}

// Spares stay: until the ranks are done, one may be needed.
void Crew::stop(int signal) {
  if (stop_signal_ == 0) stop_signal_ = signal;
  for (const auto& [index, member] : members_) tell_stop(member);
  RankGroup::stop(signal);
}

void Crew::forget_ended() {
  std::erase_if(processes_, [](const auto& entry) { return entry.second->done(); });
}

std::optional<int> Crew::common_code() const {
  if (places_[0].ended_well) return WEXITSTATUS(*places_[0].status);
  std::optional<int> code;
  for (const Place& place : places_) {
    if (!place.status || WIFSIGNALED(*place.status)) return std::nullopt;
    if (code && *code != WEXITSTATUS(*place.status)) return std::nullopt;
    code = WEXITSTATUS(*place.status);
  }
  return code;
}

bool Crew::stopped_on_request() const {
  return std::any_of(places_.begin(), places_.end(), [](const Place& place) {
    return place.status && WIFEXITED(*place.status) &&
           WEXITSTATUS(*place.status) == kExitStopped;
  });
}

}  // namespace cohort::process
