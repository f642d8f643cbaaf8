// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/communicator.h"
#include "cohort/config.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/launch/agent.h"
#include "cohort/recipe.h"
#include "cohort/step/layout.h"
#include "cohort/train/trainer_options.h"

namespace cohort {

// A run with everything resolved: made in one place before any rank starts, and never
// changed. The agent gets `launch`, each rank the rest.
struct ResolvedRun {
  const Recipe* recipe = nullptr;
  Config config;  // every key; ranks settle threads and, on one GPU, step.bucket_bytes
  bool on_gpu = false;
  std::string layout;  // as given: who starts ranks may not know yet how many there are
  bool is_rank = false;  // another launcher has started this process as one

  TrainerOptions trainer;  // all but the layout, and how many ranks share a machine
  ConnectOptions connect;
  LaunchOptions launch;  // all but what a rank does

  std::string weights;  // that the model begins with; empty: its own first values
  CudaMath math;
  bool gpu_windows = true;     // ranks that share a GPU may use its memory together
  bool is_bucket_free = true;  // nobody asked for a size of buckets
  int threads = 0;  // per rank; 0: as many as its model gains from, or it has
  bool counts_threads = false;  // each rank counts how many its model gains from

  // How rank 0 tells of the run, and the folder of what it writes; empty: none.
  bool json = false;
  bool quiet = false;
  std::string out;

  Layout layout_of(int ranks) const { return parse_layout(layout, ranks); }
};

}  // namespace cohort
