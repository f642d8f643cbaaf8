// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/core/fault_point.h"
#include "cohort/core/patient_file.h"
#include "cohort/data.h"
#include "cohort/elastic/membership.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/step_runner.h"
#include "cohort/nn/continuation.h"
#include "cohort/rate_schedule.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "cohort/train/backup.h"
#include "cohort/train/page_holder.h"
#include "cohort/update_rule.h"

namespace cohort {

// What a world has a rank compute with, where that is other than its options say.
struct WorldGpu {
  std::optional<int> number = {};            // on its node
  std::optional<int64_t> bucket_bytes = {};  // the same on all ranks
};

// Makes the chain of a rank that has that part of tensors which are cut.
using ChainOfPart = std::function<Chain(int part)>;

struct TrainerOptions {
  int64_t epochs = 1;
  int64_t max_steps = 0;  // in total; 0: as the epochs say
  int64_t batch = 128;    // global
  int slices = 0;         // 0: one per data-parallel rank
  uint64_t seed = 0;
  Layout layout;
  UpdateOptions update;
  RateOptions rate;
  GeneratorOptions step;  // how the step is made; slices are those above
  ExecutorOptions execute;
  int64_t drift_every_steps = 100;  // between two comparisons of replicas; 0: never
  int64_t memory_limit = 0;         // bytes a rank may hold; 0: what the machine has
  int ranks_here = 1;               // ranks that share this machine's memory
  // What blocks need, as count_blocks() found it. Empty: the Trainer runs each block on
  // a few samples to know.
  std::vector<BlockMeasure> counted;
  // The same of the whole model, where a rank's chain has parts of tensors: operations
  // are told of all that a step computes. Empty: its chain is the whole.
  std::vector<BlockMeasure> counted_whole = {};
  bool elastic = false;
  int64_t valid_every_epochs = 1;  // 0: never
  // A text that the model, one of language, writes on after each validation and at the
  // end; none: it writes nothing.
  std::optional<ContinuationOptions> continuation = {};

  std::string save_initial;  // safetensors; empty: not written
  std::string save_final;
  std::string sample_log;
  std::string history;  // what the run does, record by record

  BackupOptions backup;  // snapshots and checkpoints
  // When the command was started: for people, and by a clock that nobody sets.
  std::chrono::system_clock::time_point started;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
};

// The options of a run as one of its worlds has them: its ranks and slices, and what
// they reach of one another's memory, as in GeneratorOptions.
struct WorldOptions : TrainerOptions {
  bool shares_memory = false;
  int64_t join_alignment = 0;
};

// What others do for a trainer. It borrows them for as long as it lives.
struct TrainerServices {
  Membership* membership = nullptr;  // for a rank of an elastic run; null: it is none
  PageHolder* pages = nullptr;       // holds snapshots; null: nothing does
  Backlog* backlog = nullptr;    // takes what a full disk does not; null: the run ends
  FaultPlan* faults = nullptr;   // what tests let happen; null: nothing
  ActionWatch* watch = nullptr;  // sees its steps, for tests
  const Tokenizer* tokenizer = nullptr;  // for the text that the model continues
  // With tensor parallelism a rank has another part in another world.
  ChainOfPart chain_of_part = nullptr;
  // Changes training batches, in the thread that loads them; none: as they are.
  Augment augment = nullptr;
};

}  // namespace cohort
