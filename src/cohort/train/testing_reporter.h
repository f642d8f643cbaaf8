// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/train/reporter.h"

namespace cohort::test {

// For tests: remembers all that a run says.
class Recorder final : public Reporter {
 public:
  void start(const StartEvent&) override {}
  void ranks(const std::vector<RankIdentity>&) override {}
  void recovered(const RecoveredEvent& event) override { recovers.push_back(event); }
  void step(const StepEvent& event) override { steps.push_back(event); }
  void valid(const ValidEvent& event) override { valids.push_back(event); }
  void continuation(const ContinuationEvent& event) override {
    continuations.push_back(event);
  }
  void checkpoint(const CheckpointEvent& event) override { saved.push_back(event); }
  void checkpoint_failed(const CheckpointFailedEvent& event) override {
    failed.push_back(event);
  }
  void note(const std::string& line) override {
    notes += line + "\n";
    noted_after.push_back(steps.size());
  }
  void done(const DoneEvent& event) override { dones.push_back(event); }

  std::vector<RecoveredEvent> recovers;
  std::vector<StepEvent> steps;
  std::vector<ValidEvent> valids;
  std::vector<ContinuationEvent> continuations;
  std::vector<CheckpointEvent> saved;
  std::vector<CheckpointFailedEvent> failed;
  std::string notes;
  std::vector<size_t> noted_after;  // steps, by note
  std::vector<DoneEvent> dones;
};

}  // namespace cohort::test
