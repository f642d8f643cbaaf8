// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/data/sampler.h"
#include "cohort/elastic/history.h"
#include "cohort/engine/step_runner.h"
#include "cohort/observe/meter.h"
#include "cohort/rate_schedule.h"
#include "cohort/train/last_step.h"
#include "cohort/train/reporter.h"
#include "cohort/train/run_facts.h"
#include "cohort/train/sample_log.h"
#include "cohort/train/trainer_options.h"

namespace cohort {

// What a run tells of its steps: events for the reporter, the history, the log of
// samples. Every rank has one, over all its worlds, and measures; only the rank that
// has a reporter tells and writes.
//
// A world calls enter(), then begin() once it knows the step it goes on from; step()
// after each commit. Failure: DataError and ConfigError of files that cannot be
// written; CommError of begin(). Thread safety: none.
class RunRecorder {
 public:
  // Borrows all of them. `samples`: of the training set, with so many tokens each.
  // `metrics`: what the model reports.
  RunRecorder(const TrainerOptions& options, const TrainerServices& services,
              const Sampler& sampler, const RateSchedule& rate, int64_t samples,
              int64_t tokens, const Metrics& metrics);

  // The files of the world before are closed. `reporter` may be null.
  void enter(Communicator& comm, const Layout& layout, Reporter* reporter);

  // Opens the files of this world. `why` it has fewer steps than the history, if so,
  // and whether what those left was damaged. Collective in a world after the first:
  // what the ranks know of the last step.
  void begin(int64_t committed, const std::string& why, bool damaged = false);

  // The last epoch whose validation was told of before this world, on every rank alike;
  // only in a world after the first of an elastic run.
  std::optional<int64_t> validation_told() const { return validation_told_; }

  // A step is committed; `committed` counts it. Notes in `facts` when the first one
  // was; a recovery is over with it. `is_compared`: compared() or healed() follows.
  void step(int64_t committed, const StepResult& result, double seconds,
            bool is_compared, RunFacts& facts);
  // The last step before this process came, which a lost one may have left to be told.
  void catch_up(int64_t committed, double loss);

  // A step whose replicas are compared is in the history only after that: they were
  // equal, or were made so.
  void compared(int64_t committed, uint64_t weights_hash);
  void healed(int64_t committed);

  void rolled_back(int64_t from, int64_t to, const std::string& why);
  // Told once in a run, whichever ranks validate the epoch again.
  void valid(const ValidEvent& event);
  void continuation(const ContinuationEvent& event);
  void note(const std::string& line);

  // What was measured; the rest is the caller's to fill in.
  DoneEvent summary(const RunFacts& facts) const;
  void done(const DoneEvent& event, uint64_t weights_hash);

 private:
  void learn_last_step(int64_t committed);
  void open_sample_log(int64_t committed);
  KnownStep known(int64_t step) const;
  bool was_told(int64_t step);
  void tell_step(int64_t committed, double loss);
  void tell_recovery(RunFacts& facts);
  std::optional<double> tokens_per_second(double counted) const;

  const TrainerOptions& options_;
  const TrainerServices& services_;
  const Sampler& sampler_;
  const RateSchedule& rate_;
  int64_t samples_;
  int64_t tokens_of_sample_;
  Metrics metrics_;

  // What belongs to this world.
  Communicator* comm_ = nullptr;
  Layout layout_;
  Reporter* reporter_ = nullptr;
  std::unique_ptr<SampleLog> sample_log_;
  std::unique_ptr<History> history_;
  std::optional<int64_t> validation_told_;

  // What this process has seen of the run; it outlives worlds.
  int64_t steps_ = 0;  // committed when it last told or measured one
  LastStep last_;
  RateMeter speed_{1}, tokens_{1};
  SplitMeter split_{1};
  MeanMeter step_seconds_;
  std::vector<double> losses_;
};

}  // namespace cohort
