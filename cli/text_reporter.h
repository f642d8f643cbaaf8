// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/scalar_log.h"
#include "cohort/observe/progress_text.h"
#include "cohort/train/reporter.h"

namespace cohort::cli {

struct TextReporterOptions {
  std::string recipe;
  int64_t log_every = 10;
  int64_t epochs = 1;
  bool quiet = false;  // no progress: results alone
  std::string out;
};

// For people: progress on stderr (a line that redraws itself on a terminal, plain
// lines elsewhere), results on stdout.
class TextReporter final : public Reporter {
 public:
  // `backlog`: of what is written in options.out; may be null.
  explicit TextReporter(const TextReporterOptions& options, Backlog* backlog = nullptr);

  void start(const StartEvent& event) override;
  void ranks(const std::vector<RankIdentity>& ranks) override;
  void recovered(const RecoveredEvent& event) override;
  void step(const StepEvent& event) override;
  void valid(const ValidEvent& event) override;
  void continuation(const ContinuationEvent& event) override;
  void checkpoint(const CheckpointEvent& event) override;
  void checkpoint_failed(const CheckpointFailedEvent& event) override;
  void note(const std::string& line) override;
  void done(const DoneEvent& event) override;

 private:
  ProgressState progress(const StepEvent& event) const;
  void clear_line();

  TextReporterOptions options_;
  ScalarLog scalars_;
  bool terminal_;
  bool drawn_ = false;  // a progress line stands on the terminal
  int64_t total_steps_ = 0;
  double batch_ = 0;  // samples per step, for the rate of steps
  std::chrono::steady_clock::time_point began_;
  int64_t made_ = 0;  // steps, since then
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace cohort::cli
