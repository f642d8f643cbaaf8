// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/recipe.h"

namespace [[gnu::visibility("default")]] cohort {

// One committed step. Steps and epochs are counted from 1.
struct TrainedStep {
  int64_t step = 0;
  int64_t epoch = 0;
  double loss = 0;
  double rate = 0;
  double samples_per_second = 0;
};

// One pass over the validation set.
struct Validation {
  int64_t epoch = 0;
  double loss = 0;
  std::optional<double> accuracy;  // where the loss tells it (Metrics)
  std::vector<std::pair<std::string, double>> named;  // the model's own metrics
};

// Flags of `cohort train`, for one rank; keys are the Config's.
struct TrainOptions {
  std::string backend = "auto";
  std::string device = "cpu";  // or cuda
  std::string layout;          // "dp=2,pp=2,shard=1"; empty: data parallel
  bool exact = false;          // the same bits at any world size
  int64_t max_steps = 0;       // in total; 0: as the key epochs says
  bool resume = false;         // go on from what checkpoint.dir has
  std::string out;             // folder of history and scalars; empty: none
  std::string save_final;      // weights at the end (safetensors); empty: none

  // Called on rank 0, in the thread that trains; what they throw ends the run. Empty:
  // nobody is told. on_note gets lines for people.
  std::function<void(const TrainedStep&)> on_step;
  std::function<void(const Validation&)> on_validation;
  std::function<void(const std::string& line)> on_note;

  // Set to anything but 0, on any rank and from any thread, it asks all ranks to finish
  // what is under way, save and stop. May be null; outlives the call.
  const std::atomic<int>* stop = nullptr;
};

struct TrainResult {
  int64_t steps = 0;               // committed, in the whole run
  std::optional<double> loss;      // the last step's, if this call made one
  std::optional<double> accuracy;  // the last validation's, if there was one
  double samples_per_second = 0;
  int64_t peak_memory_bytes = 0;  // that of the rank with the most
  std::string weights_hash;       // over all weights: equal where they are, bit for bit
  bool is_stopped = false;        // on request
  bool is_saved = false;          // as a checkpoint, to go on from
};

// Trains a recipe in this process, as one rank of the run that a launcher's variables
// describe (world_from_env()), or as a world of one: what each rank of `cohort train`
// does.
//
//   const auto result = cohort::train(recipe, config, {.layout = "shard=2"});
//
// Collective: every rank calls it with the same recipe, keys and options but for the
// functions. All ranks return the same. The recipe's prepare() is not called: a program
// that needs it calls it before.
//
// Failure: ConfigError for what cannot be, before anything is computed; DataError of
// files; CheckpointError of saved state; CommError when a peer is lost: ranks are not
// replaced here (run_program() and ElasticRun do that). Call it from one thread at a
// time; it may set the number of LibTorch's threads.
TrainResult train(const Recipe& recipe, const Config& config,
                  const TrainOptions& options = {});

}  // namespace cohort
