// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/core/clock.h"
#include "cohort/core/fault_point.h"
#include "cohort/core/unique_fd.h"
#include "cohort/elastic/membership.h"
#include "cohort/elastic/progress_page.h"
#include "cohort/launch/seating.h"
#include "cohort/train/rank_loop.h"
#include "cohort/train/trainer_options.h"
#include "faults/model.h"

namespace cohort::threads {

// How a run of threads ended.
struct ThreadRunResult {
  std::optional<DoneEvent> done;
  std::string error;           // from the rank whose own error ended the run
  int generations = 0;         // opened after the first
  std::string notes;           // all that was said to the user
  std::vector<int64_t> steps;  // that were told, in order
  std::vector<int64_t> validated;
};

// A whole elastic run in one process: every rank is a thread that runs the program's
// own loop, Trainer, Backup and Membership; this is their agent. A rank that a fault
// ends is replaced by a new one, as a spare would; one that freezes is ended when its
// peers have noticed. Deadlines are on a virtual clock, which moves only after freeze()
// or lose().
//
// Thread safety: kill(), freeze(), lose() and resize() from the ranks' threads, in
// fault points.
class ThreadRun {
 public:
  static constexpr std::chrono::seconds kTimeout{120};  // when ranks wait for another

  struct Options {
    int ranks = 2;
    Team team = {};
    TrainerOptions trainer;
    FaultPlan* faults = nullptr;  // not null
    Model model = Model::kMlp;
    std::string name = {};  // said if it hangs
  };
  explicit ThreadRun(Options options);
  ~ThreadRun();

  // Runs to the end. A test failure if that takes too long.
  ThreadRunResult run();

  // What may happen to the rank whose thread calls; or one that works for it, so that
  // the rank itself follows as soon as it hears of it.
  [[noreturn]] void kill(int rank);
  [[noreturn]] void freeze();
  // Its next message is lost: everyone will wait for it.
  void lose_message(int rank);
  // Somebody will wait in vain.
  void let_time_run();
  // From here on the run has so many ranks.
  void resize(int ranks);
  // Until the clock has moved by `time`, while ranks that live show it.
  void slow_down(std::chrono::seconds time);

 private:
  struct Member;
  class Host;

  void start(int place, std::optional<World> first);
  void body(Member& member, std::optional<World> first);
  std::unique_ptr<Communicator> take_communicator(const World& world);
  World world_of(int place) const;
  void open(int size);
  void look_at(Member& member);
  void handle(Member& member, LinkMessage& message);
  void answer_kept(const Member& member, const std::string& name) const;
  void break_world(const std::string& why);
  void settle();
  bool step_once();
  void keep_time(const std::stop_token& stop);
  bool everyone_reported() const;
  bool finished() const;
  std::string describe();

  Options options_;
  ProgressPage progress_page_;
  VirtualClock clock_;
  int generation_ = 0;
  int size_ = 0;
  bool promised_ = false;  // rank 0 was told that there is no other world
  bool lost_ = false;      // a rank has reported this world broken
  std::string last_reason_;
  std::map<std::string, UniqueFd> kept_;
  std::vector<std::unique_ptr<Member>> members_;  // all that ever lived
  ThreadRunResult result_;

  std::mutex mutex_;  // guards what ranks' threads touch
  std::condition_variable change_;
  std::map<int, std::vector<std::unique_ptr<Communicator>>> halls_;  // by generation
  std::optional<int> wanted_size_;
  int frozen_ = 0;
  int living_ = 0;
  std::set<int> doomed_;  // ranks
  bool release_frozen_ = false;
  bool over_ = false;
  bool time_runs_ = false;
};

}  // namespace cohort::threads
