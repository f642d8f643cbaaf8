// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/scalar_log.h"
#include "cohort/train/reporter.h"

namespace cohort::cli {

// The contract's lines on stdout, each one JSON object, flushed at once.
class JsonReporter final : public Reporter {
 public:
  JsonReporter(int64_t log_every, const std::string& out, Backlog* backlog)
      : log_every_(log_every), scalars_(out, log_every, backlog) {}

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
  int64_t log_every_;
  ScalarLog scalars_;
};

}  // namespace cohort::cli
