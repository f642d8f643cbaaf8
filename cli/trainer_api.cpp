// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <cstdlib>
#include <memory>

#include "cli/resolve_run.h"
#include "cli/run_folders.h"
#include "cli/scalar_log.h"
#include "cohort/core/error.h"
#include "cohort/core/loaded_libtorch.h"
#include "cohort/train/rank_run.h"
#include "cohort/trainer.h"

namespace cohort {
namespace {

// Hands on to the functions of TrainOptions what they ask for.
class CallingReporter final : public Reporter {
 public:
  CallingReporter(const TrainOptions& options, int64_t log_every, Backlog* backlog)
      : options_(options), scalars_(options.out, log_every, backlog) {}

  void start(const StartEvent&) override {}
  void ranks(const std::vector<RankIdentity>&) override {}
  void recovered(const RecoveredEvent&) override {}
  void step(const StepEvent& event) override {
    scalars_.step(event);
    if (options_.on_step)
      options_.on_step({.step = event.step,
                        .epoch = event.epoch,
                        .loss = event.loss,
                        .rate = event.rate,
                        .samples_per_second = event.samples_per_second});
  }
  void valid(const ValidEvent& event) override {
    scalars_.valid(event);
    if (options_.on_validation)
      options_.on_validation({.epoch = event.epoch,
                              .loss = event.loss,
                              .accuracy = event.accuracy,
                              .named = event.named});
  }
  void continuation(const ContinuationEvent&) override {}
  void checkpoint(const CheckpointEvent&) override {}
  void checkpoint_failed(const CheckpointFailedEvent& event) override {
    note(text("step ", event.step, " is not saved: ", event.cause));
  }
  void note(const std::string& line) override {
    if (options_.on_note) options_.on_note(line);
  }
  void done(const DoneEvent&) override { scalars_.finish(); }

 private:
  const TrainOptions& options_;
  cli::ScalarLog scalars_;
};

cli::TrainArgs args_of(const TrainOptions& options) {
  cli::TrainArgs args;
  args.backend = options.backend;
  args.device = options.device;
  args.layout = options.layout;
  args.exact = options.exact;
  args.max_steps = options.max_steps;
  args.out = options.out;
  args.resume = options.resume;
  args.save_final = options.save_final;
  return args;
}

}  // namespace

TrainResult train(const Recipe& recipe, const Config& config,
                  const TrainOptions& options) {
  require_built_libtorch();
  if (std::getenv("COHORT_ELASTIC"))
    throw ConfigError(
        "[train] this is a rank or a spare of `cohort launch --elastic`, whose worlds "
        "come and go; legal: run_program(), ElasticRun, or a launch without --elastic");
  const std::atomic<int> nobody{0};
  const ResolvedRun run = cli::resolve_rank(args_of(options), recipe, config);
  if (run.threads > 0) at::set_num_threads(run.threads);
  const auto locks = cli::take_folders_as_rank(run);
  cli::write_config(run.out, run.config);
  const int64_t every = config.get_int("log.every_steps");
  const RankServices services{.stop = options.stop ? *options.stop : nobody,
                              .hear_stop = [](bool) {},
                              .die_of_stop = [] {},
                              .make_reporter =
                                  [&](Backlog* backlog) {
                                    return std::make_unique<CallingReporter>(
                                        options, every, backlog);
                                  },
                              .warn =
                                  [&](const std::string& line) {
                                    if (options.on_note) options.on_note(line);
                                  }};
  const auto done = run_rank(run, services).done;
  COHORT_CHECK(done, "a run of ranks that stay ended without this one");
  return {.steps = done->steps,
          .loss = done->loss,
          .accuracy = done->accuracy,
          .samples_per_second = done->samples_per_second,
          .peak_memory_bytes = done->peak_memory_bytes,
          .weights_hash = done->weights_hash,
          .is_stopped = done->stop_signal != 0,
          .is_saved = done->saved};
}

}  // namespace cohort
