// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/data/dataset.h"
#include "cohort/data/sampler.h"
#include "cohort/elastic/commit.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/step_runner.h"
#include "cohort/rate_schedule.h"
#include "cohort/step/schedule.h"
#include "cohort/train/backup.h"
#include "cohort/train/batch_loader.h"
#include "cohort/train/lateness.h"
#include "cohort/train/reporter.h"
#include "cohort/train/run_facts.h"
#include "cohort/train/run_recorder.h"
#include "cohort/train/step_plan.h"
#include "cohort/train/trainer_options.h"
#include "cohort/update_rule.h"

namespace cohort {

// Thrown by Trainer::enter() on all ranks alike: a world was lost while its ranks took
// their first state, and no step was committed. A new Trainer on each can enter the
// same world and begin.
class FirstStateLost final : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Trains a chain on a data set: the loop, validation, and what is kept at the end.
//
// Every rank makes one with equal options, enters a world and calls fit(); rank 0
// reports and writes files. The order of samples, the weights' start and the rate
// depend on options alone, so a run can be cut and gone on with anywhere.
class Trainer {
 public:
  // `chain` is that of part 0 of tensors that are cut, and becomes another one where
  // this rank has another. `stop` may be set at any time, on any rank, to a signal's
  // number: all ranks finish what is under way and stop together.
  Trainer(Chain& chain, const Dataset& train, const Dataset* valid,
          const TrainerOptions& options, const std::atomic<int>& stop,
          const TrainerServices& services = {});
  ~Trainer();

  // Collective: takes the run up in this world. `reporter` is null but on rank 0;
  // `gpu`: what is other in this world than the options say.
  //
  // After a CommError it may be called again, with the communicator of the next world,
  // which may be larger or smaller and have ranks that are new. They go on from the
  // last step that was committed; a new rank takes the state from the others. From
  // then on nothing of the communicator before is used.
  void enter(Communicator& comm, Reporter* reporter, const WorldGpu& gpu = {});

  // Collective: trains to the end of the run. Returns what was reported as done, on
  // every rank.
  DoneEvent fit();

  // A world has stood. Until then a trainer whose world was lost is of no more use:
  // parts of its chain may have gone with that world.
  bool has_begun() const { return state_.begun; }

  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }

 private:
  void take_part(int part);
  WorldOptions options_in(const Communicator& comm, const WorldGpu& gpu) const;
  void take_up(Communicator& comm, Reporter* reporter);
  void settle(std::unique_ptr<StepRunner> fresh, std::span<const StateReport> reports);
  StateReport report() const;
  std::string take_from_peers(std::unique_ptr<StepRunner>& fresh,
                              std::span<const StateReport> reports);
  void take_from_backup(std::unique_ptr<StepRunner> fresh, const std::string& why,
                        std::span<const StateReport> reports);
  void hold(std::unique_ptr<StepRunner> fresh, int64_t steps);
  RunState run_state() const;
  void adopt(StepRunner& fresh, std::span<const StateReport> reports,
             const std::vector<int>& odd);
  void compare_replicas();
  bool must_compare(int64_t step) const;
  bool heal(const std::string& line, const ReplicaReport& found);
  bool go_back(const std::string& why);
  void look_for_slow_rank();
  bool must_validate(int64_t step) const;
  int asked_to_stop() const;
  void require_world() const;  // CommError if it is over
  void start(int64_t step);
  bool may_run_ahead() const;
  void step();
  void conclude(const StepResult& result, double seconds);
  void validate(int64_t epoch);
  void prepare_to_speak();
  void speak();
  std::optional<int64_t> next_token(const Continuation& text);  // none: stop
  void save(const std::string& path);
  std::string save_final();  // why it could not; empty if it is done
  int64_t peak_memory() const;
  void tell_flops(DoneEvent& done) const;
  DoneEvent finish();
  std::unique_ptr<BatchLoader> make_loader(const Schedule& schedule) const;
  Batch make_batch(const Position& position, std::span<const int64_t> ids) const;
  Batch batch_of(int64_t step, int slice);
  bool reach(std::string_view point, int64_t index = -1) const;

  Chain& chain_;
  struct Part {
    int number = 0;  // which part of tensors chain_ has
    Chain retired;   // had another; its memory goes with the runner that used it
  };
  Part part_;
  const Dataset& train_;
  const Dataset* valid_;
  const TrainerOptions options_;
  const std::atomic<int>& stop_;
  const TrainerServices services_;

  Sampler sampler_;
  RateSchedule rate_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<BlockMeasure> measures_;
  int64_t total_steps_;

  // What belongs to this world.
  WorldOptions here_;
  Communicator* comm_ = nullptr;
  std::unique_ptr<StepRunner> runner_;  // while entering: of the world before
  struct RankWork {                     // this rank's part of the work
    Sampler cut;  // the samples of the run, in slices of this world
    Schedule forward_only;
    int64_t valid_samples = 1;  // at once, as far as this rank knows
    StepFlops flops = {};       // per step, on all ranks; 0: nobody counted
    // Those of a batch that it computes with.
    std::vector<std::string> step_fields = {}, valid_fields = {};
  };
  RankWork work_;
  struct Speech {  // for a model that continues a text
    std::unique_ptr<Block> logits;
    Schedule forward;
    int64_t context = 0;  // tokens that the model reads at once
  };
  Speech speech_;
  struct Pace {
    bool is_ahead = false;  // the step behind the last that was committed is started
    std::chrono::steady_clock::time_point turned;  // when a result was last asked for
  };
  Pace pace_;

  // What this process knows of the run: it outlives worlds.
  struct Held {
    int64_t committed = -1;                   // steps; -1: there is none that is whole
    bool begun = false;                       // there was one
    int64_t sound_until = StateReport::kAll;  // that of any later step is damaged
  };
  Held state_;
  RunFacts facts_;
  RunRecorder recorder_;
  LatenessWatch lateness_;
  Backup backup_;  // goes before them: what it writes is the runner's
  std::unique_ptr<BatchLoader> loader_;  // this world's; goes first: it uses the rest
};

}  // namespace cohort
