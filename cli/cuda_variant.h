// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cli/cuda_case.h"
#include "cohort/engine/executor.h"
#include "cohort/step/layout.h"

namespace cohort::cli {

// How a benchmark on GPUs runs its steps.
struct CudaVariantOptions {
  Layout layout = {};
  int gpu = 0;
  bool capture = true;
  ActionWatch* watch = nullptr;  // sees each action; nothing is captured then
};

// One way of running the same steps, on this rank, with all state on its GPU: ranks
// that are several exchange it there. Construction is collective, and runs the first
// few.
class CudaVariant {
 public:
  CudaVariant(const CudaCase& bench, const BenchTrainArgs& args, const Batch& batch,
              Communicator& comm, const CudaVariantOptions& options);

  // Steps behind one another, as training runs them.
  void take_turn();
  // Each begins before the result of the one before it is known; all are waited for.
  void run(int steps);
  // How long the host is busy with one step: nothing is queued before it.
  double host_s();

  double step_s() const;
  double first_s() const { return first_s_; }
  double loss() const { return loss_; }
  // Without the batch it was given, which is no part of a step.
  int64_t peak_bytes() const;
  // What the plan says before a step: activations are counted, not measured.
  int64_t planned_bytes() const { return planned_bytes_; }
  const Executor& executor() const { return *executor_; }

 private:
  void start();

  Chain chain_;
  Batch batch_;
  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<Executor> executor_;
  std::vector<double> step_s_;
  double first_s_ = 0, loss_ = 0;
  int64_t number_ = 0, planned_bytes_ = 0;
};

}  // namespace cohort::cli
