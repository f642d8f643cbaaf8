// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_runner.h"
#include "cohort/step/gradient_target.h"

namespace cohort {

// The samples of a rank's slices in the step at hand, where blocks compute with them.
class StepBatches {
 public:
  virtual ~StepBatches() = default;

  virtual void begin(const StepInput& input) = 0;
  // One batch is evaluated, as slice 0.
  virtual void begin_evaluation(const StepInput& input) = 0;

  virtual const Batch& at(int slice) = 0;
  // Null: the host draws.
  virtual DeviceRandom* random(int) { return nullptr; }
  // Nobody computes with that slice any more; how many samples it had is still asked.
  virtual void drop(int) {}
  virtual void clear() {}

 protected:
  StepBatches() = default;
};

struct BatchOptions {
  int first_slice = 0;  // this rank's first, in the global batch
  int slices = 1;       // it has so many
  bool draws = true;    // one of the ranks that have a slice does
  at::ScalarType compute = at::kFloat;
  std::vector<std::string> rounded = {};  // fields that are computed with in that
  uint64_t seed = 0;
};

// In the memory they were loaded to, each when it is first asked for.
class HostBatches final : public StepBatches {
 public:
  HostBatches(BatchOptions options, StepInFlight& step);

  void begin(const StepInput& input) override;
  void begin_evaluation(const StepInput& input) override;
  const Batch& at(int slice) override;
  void drop(int slice) override { batches_[slice].fields.clear(); }
  void clear() override { batches_.clear(); }

 private:
  const BatchOptions options_;
  StepInFlight& step_;
  const StepInput* input_ = nullptr;
  bool evaluates_ = false;
  std::map<int, Batch> batches_;  // by slice
};

}  // namespace cohort
