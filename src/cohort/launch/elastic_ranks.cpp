// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/elastic_ranks.h"

#include <sys/wait.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/process.h"
#include "cohort/launch/launch_setup.h"

namespace cohort::process {
namespace {

// Between two looks for progress, while teams are to leave one after another.
constexpr std::chrono::milliseconds kLookAtProgress{20};

}  // namespace

ElasticRanks::ElasticRanks(RankPlan& plan, ZygoteHandle& zygote, AgentStream& out,
                           AgentStream& err, std::unique_ptr<StoreServer> store)
    : RankGroup(plan, zygote, out, err, plan.options.elastic.detect),
      plan_(plan),
      elastic_(plan.options.elastic),
      budget_(plan.options.max_restarts),
      stores_(std::move(store)),
      spare_plan_(elastic_.spares, elastic_.replace),
      goal_(elastic_.team.ranks(), elastic_.detect) {}

void ElasticRanks::start() {
  seats_.resize(plan_.options.ranks);
  for (int r = 0; r < plan_.options.ranks; ++r) seats_[r].index = fork(r);
  stores_.prepare();
  spare_plan_.start_later(Clock::now());
}

// A rank of the first generation finds its world in the environment, as that of any
// launcher; all others, in their first message.
int ElasticRanks::fork(int local_rank) {
  const int index = next_index_++;
  RankProcess& process = add(index, local_rank);
  auto [ours, theirs] = AgentLink::make_pair();
  ours.send(LinkMessage::kProgressPage, generation_, {}, progress_page_.fd());
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

World ElasticRanks::world_of(int local_rank) const {
  World world;
  world.rank = world.local_rank = local_rank;
  world.size = world.local_size = static_cast<int>(seats_.size());
  world.generation = generation_;
  world.master_addr = plan_.world.master_addr;
  world.master_port = plan_.world.master_port;
  world.token = plan_.world.token;
  world.launcher = "cohort";
  return world;
}

void ElasticRanks::add_polls(std::vector<pollfd>& polls) const {
  RankGroup::add_polls(polls);
  for (const auto& [index, member] : members_) {
    if (member.link.open()) polls.push_back({member.link.fd(), POLLIN, 0});
  }
}

Clock::time_point ElasticRanks::next_deadline() const {
  Clock::time_point next = std::min(RankGroup::next_deadline(), spare_plan_.start_at());
  if (broken_) next = std::min(next, broken_->since + elastic_.detect);
  if (goal_.is_set()) next = std::min(next, Clock::now() + kLookAtProgress);
  for (const auto& [index, member] : members_) next = std::min(next, member.leave_by);
  return next;
}

void ElasticRanks::advance() {
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
  if (now >= spare_plan_.start_at()) fork_spares();
  forget_ended();
}

void ElasticRanks::on_end(RankProcess& process) {
  auto member = members_.extract(process.index());
  if (member.empty()) return;
  read_link(process.index(), member.mapped());  // its last words
  if (member.mapped().leaving) return;
  if (process.is_spare()) return on_spare_end(process, member.mapped());
  Seat& seat = seats_[process.local_rank()];
  seat = Seat{-1, process.status(), ended_well(process)};
  if (has_no_loop(process, member.mapped())) return refuse_program();
  life_.on(event_of(process));
  if (seat.ended_well) {
    dismiss_spares();
  } else if (life_.is_ending() || ended_by_request(process)) {
    if (!life_.is_ending() && WIFEXITED(process.status()))
      note(text(process.name(), " failed: ", describe_cause(process.failure())));
    life_.on(ElasticEvent::kDiedOfStop);
    tell_end("a rank was lost while the run was being stopped");
    stores_.close(world_of(0));  // someone may wait there for the one that is lost
  } else if (life_.is_finished() &&
             (process.killed_from_outside() || process.given_up())) {
    note(text(process.name(), " failed: ", describe_cause(process.failure()),
              "; the run was done"));
    if (!broken_) break_world(process.name() + " died");
  } else {
    dead_.push_back(process.failure());
  }
}

// A program that never asked for its link cannot be told of another world. While the
// run is being stopped it may have ended before it came to that.
bool ElasticRanks::has_no_loop(const RankProcess& process, const Member& member) const {
  return !plan_.options.program.empty() && !member.taken && process.is_fine() &&
         !life_.is_stopping();
}

void ElasticRanks::refuse_program() {
  Failure failure;
  failure.exit_code = kExitConfig;
  failure.host = host_name();
  failure.message =
      text(plan_.options.program[0],
           " ended well without a cohort::ElasticRun, so no rank could be replaced; "
           "legal: a loop in ElasticRun::train(), or launch without --elastic");
  give_up({failure}, "");
}

ElasticEvent ElasticRanks::event_of(const RankProcess& process) const {
  const bool first = process.local_rank() == 0;
  if (ended_well(process))
    return first ? ElasticEvent::kRank0EndedWell : ElasticEvent::kRankEndedWell;
  if (!first) return ElasticEvent::kRankDied;
  return is_last_word(process) ? ElasticEvent::kRank0LastWord
                               : ElasticEvent::kRank0Died;
}

bool ElasticRanks::ended_well(const RankProcess& process) const {
  return process.is_fine() || (life_.is_stopping() && WIFEXITED(process.status()) &&
                               process.code() == 128 + stop_signal_);
}

// It had nothing to save yet, or could not: another one would do no better.
bool ElasticRanks::ended_by_request(const RankProcess& process) const {
  if (!life_.is_stopping() || process.given_up()) return false;
  return WIFSIGNALED(process.status()) ? !process.killed_by_others()
                                       : process.code() == kExitCheckpoint;
}

// One that is on its way to its first world hears of a stop by its link.
bool ElasticRanks::hears(const RankProcess& process) const {
  const auto member = members_.find(process.index());
  return !process.is_spare() && member != members_.end() && member->second.ready;
}

// It has said that the run is done, and then what of it could not be written or saved.
bool ElasticRanks::is_last_word(const RankProcess& process) const {
  return life_.is_finished() && WIFEXITED(process.status()) &&
         (process.code() == kExitData || process.code() == kExitCheckpoint);
}

// Nothing is lost with it but time.
void ElasticRanks::on_spare_end(RankProcess& process, const Member& member) {
  if (has_no_loop(process, member)) return refuse_program();
  if (!life_.allows(ElasticEvent::kSpareWanted)) return;
  Failure failure = process.failure();
  failure.rank = 0;  // or there would be no cause
  note(text(process.name(), " failed: ", describe_cause(failure)));
  spare_plan_.lose_one();
  if (!member.ready && spare_plan_.died_on_its_way()) note("there are no more spares");
  spare_plan_.start_later(Clock::now());
}

// What the deaths and complaints since the last call come to.
void ElasticRanks::settle() {
  if (life_.is_ending()) dead_.clear();
  if (broken_ && life_.is_finished()) {
    for (Seat& seat : seats_) {  // there is nobody to go on with
      if (seat.index < 0 || !members_.at(seat.index).reported) continue;
      dismiss(seat.index, plan_.options.grace);
      seat = Seat{-1, 0, true};
    }
    broken_.reset();
  }
  if (!dead_.empty()) {
    recover(std::exchange(dead_, {}));
  } else if (!life_.is_ending() && broken_ && all_reported()) {
    Failure group;
    group.exit_code = kExitLostPeer;
    group.host = host_name();
    group.message = "all ranks lost one another: " + broken_->why;
    recover({group});
  }
  if (life_.is_stopping() && running() == 0) dismiss_spares();
}

void ElasticRanks::recover(const std::vector<Failure>& dead) {
  if (life_.is_finished()) return give_up({dead.front()}, "");
  RestartBudget::Steps made{.highest = progress_page_.highest()};
  for (size_t rank = 0; rank < seats_.size(); ++rank)
    made.now = std::max(made.now, progress_page_.committed(static_cast<int>(rank)));
  if (const auto refusal = budget_.spend(dead, made)) {
    return give_up({refusal->cause}, refusal->why);
  }
  const size_t before = seats_.size();
  const auto seats = seats_after_loss();
  if (seats.empty()) {
    return give_up(
        {dead.front(), true},
        text(left(), left() == 1 ? " rank is" : " ranks are",
             " left, and a model is held by ", elastic_.team.ranks(), " together"));
  }
  faults_.insert(faults_.end(), dead.begin(), dead.end());
  keep_the_rest_waiting(seats);
  if (seats.size() != before) prepare_resize(plan_, static_cast<int>(seats.size()));
  open(seats);
  if (seats.size() != before) pin_all();
  goal_.lost_to(static_cast<int>(seats.size()));
  note(text("opened generation ", generation_, " with ", seats_.size(), " ranks",
            words_of_waiting(), " (restart ", budget_.used(), " of ",
            plan_.options.max_restarts, ")"));
}

void ElasticRanks::give_up(const GivenUp& end, const std::string& why) {
  given_up_ = end;
  const Failure& cause = given_up_->cause;
  faults_.push_back(cause);
  if (!why.empty()) {
    note(cause.rank < 0 ? text("no recovery: ", why)
                        : text("no recovery of rank ", cause.rank, ": ", why));
  }
  life_.on(ElasticEvent::kGaveUp);
  tell_end(describe_cause(cause));
  dismiss_spares();
  stop(SIGTERM);
}

// A rank waits for another one that shows no sign of life, though it is not dead.
void ElasticRanks::end_the_silent(Clock::time_point now) {
  if (!broken_ || life_.is_ending() || now < broken_->since + elastic_.detect) return;
  if (all_reported()) return;
  for (const Seat& seat : seats_) {
    if (seat.index < 0 || members_.at(seat.index).reported) continue;
    processes_.at(seat.index)
        ->give_up(text("it kept the others waiting for ",
                       elastic_.detect.count() / 1000.0, " s, so it was killed (",
                       broken_->why, ")"));
  }
  broken_.reset();
}

bool ElasticRanks::all_reported() const {
  return std::all_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    return seat.index < 0 || members_.at(seat.index).reported;
  });
}

void ElasticRanks::lost() {
  life_.on(ElasticEvent::kKilled);
  RankGroup::lost();
}

void ElasticRanks::kill() {
  life_.on(ElasticEvent::kKilled);
  RankGroup::kill();
}

// Spares stay: until the ranks are done, one may be needed.
void ElasticRanks::stop(int signal) {
  life_.on(ElasticEvent::kStopAsked);
  if (stop_signal_ == 0) stop_signal_ = signal;
  for (const auto& [index, member] : members_) tell_stop(member);
  RankGroup::stop(signal);
}

void ElasticRanks::forget_ended() {
  std::erase_if(processes_, [](const auto& entry) { return entry.second->done(); });
}

std::optional<int> ElasticRanks::common_code() const {
  if (seats_[0].ended_well) return WEXITSTATUS(*seats_[0].status);
  std::optional<int> code;
  for (const Seat& seat : seats_) {
    if (!seat.status || WIFSIGNALED(*seat.status)) return std::nullopt;
    if (code && *code != WEXITSTATUS(*seat.status)) return std::nullopt;
    code = WEXITSTATUS(*seat.status);
  }
  return code;
}

bool ElasticRanks::stopped_on_request() const {
  return std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
    return seat.status && WIFEXITED(*seat.status) &&
           WEXITSTATUS(*seat.status) == kExitStopped;
  });
}

}  // namespace cohort::process
