// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/elastic/agent_link.h"
#include "cohort/elastic/progress_page.h"
#include "cohort/launch/elastic_state.h"
#include "cohort/launch/rank_group.h"
#include "cohort/launch/resize_goal.h"
#include "cohort/launch/restart_budget.h"
#include "cohort/launch/spare_plan.h"
#include "cohort/launch/world_stores.h"

namespace cohort::process {

// The ranks of an elastic run, over all its generations, and their spares.
//
// A rank's number is a seat. When the process in it dies, or is killed because it
// froze, a spare takes the seat, or others move up, and everyone is sent a World with
// a store of its own; what the ranks make of it is theirs. The memory they hand over
// outlives all of them. So it is while the run is being stopped: what it has is saved
// by all ranks together.
class ElasticRanks : public RankGroup {
 public:
  // `plan` belongs to them while they live, as does the store of its first world.
  ElasticRanks(RankPlan& plan, ZygoteHandle& zygote, AgentStream& out, AgentStream& err,
               std::unique_ptr<StoreServer> store);

  void start();
  void add_polls(std::vector<pollfd>& polls) const override;
  Clock::time_point next_deadline() const override;
  void advance() override;
  void lost() override;
  void stop(int signal) override;
  void kill() override;
  bool done() const override { return dead_.empty() && RankGroup::done(); }

  // Opens a generation of so many ranks; returns a line that says so. ConfigError if
  // that cannot be.
  std::string resize(int ranks);

  // Deaths since the last call, to be told to the user.
  std::vector<Failure> faults() { return std::exchange(faults_, {}); }
  // What the run was given up for, if it was.
  const Failure* cause() const { return given_up_ ? &given_up_->cause : nullptr; }
  int restarts() const { return budget_.used(); }
  // The ranks that were left made no team.
  bool has_too_few() const { return given_up_ && given_up_->too_few; }
  // After done(), as those of FixedRanks.
  std::optional<int> common_code() const;
  bool stopped_on_request() const;

 private:
  struct Member {
    AgentLink link;
    bool ready = false;     // in the first world, or come to where spares wait
    bool taken = false;     // its process has an elastic loop
    bool reported = false;  // a rank whose world is broken
    bool leaving = false;   // was told to
    Clock::time_point leave_by = Clock::time_point::max();
  };
  struct Seat {
    int index = -1;             // number of its process; -1: none lives
    std::optional<int> status;  // exit status of the last one that ended
    bool ended_well = false;
  };
  // A rank has reported that its world is broken. A rank that does not report as well
  // in time is the one that the others wait for.
  struct WorldBreak {
    Clock::time_point since;
    std::string why;
  };
  struct GivenUp {
    Failure cause;
    bool too_few = false;
  };

  int fork(int local_rank);
  // `seats`: by seat, which one its process has now; -1: none.
  void open(const std::vector<int>& seats);
  void fill(int local_rank);
  int take_spare();
  int spares() const;
  void fork_spares();
  std::vector<bool> living() const;
  int left() const;
  std::vector<int> seats_after_loss() const;
  void keep_the_rest_waiting(const std::vector<int>& seats);
  std::string words_of_waiting() const;  // ", 2 wait"
  World world_of(int local_rank) const;

  void read_link(int index, Member& member);
  void handle(int index, Member& member, LinkMessage& message);
  void break_world(const std::string& why);
  void promise_no_world(const Member& member);
  void answer_held(const Member& member, const std::string& name) const;

  bool hears(const RankProcess& process) const override;
  void on_end(RankProcess& process) override;
  void on_spare_end(RankProcess& process, const Member& member);
  ElasticEvent event_of(const RankProcess& process) const;  // that has ended
  bool ended_well(const RankProcess& process) const;
  bool has_no_loop(const RankProcess& process, const Member& member) const;
  void refuse_program();
  bool is_last_word(const RankProcess& process) const;
  bool ended_by_request(const RankProcess& process) const;
  void settle();
  void recover(const std::vector<Failure>& dead);
  void give_up(const GivenUp& end, const std::string& why);
  void end_the_silent(Clock::time_point now);
  bool all_reported() const;

  void move_towards_goal(Clock::time_point now);
  void pin_all();
  void dismiss(int index, std::chrono::milliseconds limit);
  void dismiss_spares();
  void tell_stop(const Member& member) const;
  void tell_end(const std::string& why) const;
  void forget_ended();

  RankPlan& plan_;
  const ElasticOptions& elastic_;
  ProgressPage progress_page_;
  RestartBudget budget_;
  WorldStores stores_;
  int generation_ = 0;
  int next_index_ = 0;
  std::map<int, Member> members_;  // by index, while they live
  std::vector<Seat> seats_;        // by local rank
  std::map<std::string, UniqueFd> held_;

  std::vector<Failure> dead_;    // not recovered from yet
  std::vector<Failure> faults_;  // not told yet
  ElasticLife life_;             // is stopping when stopping(), which the agent asks
  std::optional<WorldBreak> broken_;
  std::optional<GivenUp> given_up_;
  SparePlan spare_plan_;
  ResizeGoal goal_;      // the resize that is under way
  int stop_signal_ = 0;  // that the run was asked to stop by
};

}  // namespace cohort::process
