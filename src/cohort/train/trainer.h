// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/data/augment.h"
#include "cohort/data/dataset.h"
#include "cohort/data/sampler.h"
#include "cohort/elastic/commit.h"
#include "cohort/elastic/history.h"
#include "cohort/elastic/membership.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/step_runner.h"
#include "cohort/optim/rate_schedule.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/train/keeper.h"
#include "cohort/train/lateness.h"
#include "cohort/train/page_keeper.h"
#include "cohort/train/reporter.h"
#include "cohort/train/sample_log.h"

namespace cohort {

struct TrainerOptions {
  int64_t epochs = 1;
  int64_t max_steps = 0;  // in total; 0: as the epochs say
  int64_t batch = 128;    // global
  int slices = 0;         // 0: one a data-parallel rank
  uint64_t seed = 0;
  Layout layout;
  UpdateOptions update;
  RateOptions rate;
  GeneratorOptions step;  // how the step is made; slices are those above
  ExecutorOptions execute;
  int64_t drift_every_steps = 100;  // between two comparisons of replicas; 0: never
  int64_t memory_limit = 0;         // bytes a rank may hold; 0: what the machine has
  int ranks_here = 1;               // ranks that share this machine's memory
  bool shares_memory = false;       // the Trainer finds out
  bool elastic = false;
  Augment augment;                 // of training batches; none: as they are
  int64_t valid_every_epochs = 1;  // 0: never

  std::string save_initial;  // safetensors; empty: not written
  std::string save_final;
  std::string sample_log;
  std::string history;         // what the run does, record by record
  Backlog* backlog = nullptr;  // of it, when the disk is full; null: the run ends

  KeeperOptions keep;                             // snapshots and checkpoints
  PageKeeper* pages = nullptr;                    // who keeps snapshots; null: nobody
  Membership* membership = nullptr;               // of a rank of an elastic run
  std::chrono::system_clock::time_point started;  // the command
};

// Trains a chain on a data set: the loop, validation, and what is kept at the end.
//
// Every rank makes one with equal options, enters a world and calls fit(); rank 0
// reports and writes files. The order of samples, the weights' start and the rate
// depend on options alone, so a run can be cut and gone on with anywhere.
class Trainer {
 public:
  // `stop` may be set at any time, on any rank, to a signal's number: all ranks finish
  // the step and stop together.
  Trainer(Chain& chain, const Dataset& train, const Dataset* valid,
          const TrainerOptions& options, const std::atomic<int>& stop);
  ~Trainer();

  // Collective: takes the run up in this world. `reporter` is null but on rank 0.
  //
  // After a CommError it may be called again, with the communicator of the next world,
  // which may be larger or smaller and have ranks that are new. They go on from the
  // last step that was committed; whoever is new takes the state from the others. From
  // then on nothing of the communicator before is used.
  void enter(Communicator& comm, Reporter* reporter);

  // Collective: trains to the end of the run. Returns what was reported as done, on
  // every rank.
  DoneEvent fit();

  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }

 private:
  void settle(StepRunner& fresh, std::span<const Stand> stands);
  Stand stand() const;
  std::string take_from_peers(StepRunner& fresh, std::span<const Stand> stands);
  void take_from_keeper(const std::string& why);
  RunState run_state() const;
  void compare_replicas();
  void note_compared_step();
  void look_for_slow_rank();
  bool is_compared(int64_t step) const {
    return options_.drift_every_steps > 0 && step % options_.drift_every_steps == 0;
  }
  bool heal(const ReplicaReport& found);
  bool go_back(const std::string& why);
  void adopt(StepRunner& fresh, bool holds, std::span<const Stand> stands);
  void open_sample_log();
  void begin_history(const std::string& why);
  bool was_reported(int64_t step);
  void speak_of_last_step();
  void report_recovery();
  bool must_validate() const;
  int asked_to_stop() const;
  void step();
  void conclude(const StepResult& result, double seconds);
  void validate(int64_t epoch);
  void save(const std::string& path);
  DoneEvent summarise();
  Batch batch_of(const Position& position, int slice) const;

  Chain& chain_;
  const Dataset& train_;
  const Dataset* valid_;
  TrainerOptions options_;
  const std::atomic<int>& stop_;

  Sampler sampler_;
  RateSchedule rate_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<BlockMeasure> measures_;
  int64_t total_steps_;

  // Of this world.
  Communicator* comm_ = nullptr;
  Reporter* reporter_ = nullptr;
  std::unique_ptr<StepRunner> runner_;  // while entering: of the world before
  Schedule forward_only_;
  std::unique_ptr<SampleLog> sample_log_;
  std::unique_ptr<History> history_;
  Keeper keeper_;
  LatenessWatch lateness_;
  double window_seconds_ = 0;  // of the steps since the last look for a slow rank
  int64_t window_steps_ = 0;
  std::optional<std::chrono::steady_clock::time_point> lost_;  // the world before

  // Of the run, as this process knows it.
  int64_t committed_ = -1;  // steps that the state holds; -1: there is none yet
  int64_t known_good_ = 0;  // steps after which all replicas were equal
  int64_t validated_ = 0;   // epochs
  bool skipped_ = false;    // the last step changed nothing
  bool stopping_ = false;
  RateMeter speed_{1};
  SplitMeter split_{1};
  MeanMeter step_seconds_;
  std::vector<double> losses_;
  DoneEvent done_;
};

}  // namespace cohort
