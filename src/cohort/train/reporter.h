// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/observe/meter.h"

namespace cohort {

struct RankIdentity {
  int rank = 0;
  int64_t pid = 0;
  std::string host;
  int generation = 0;
};

struct StartEvent {
  std::string config_json;
  std::string backend;
  std::string device;
  int threads = 1;  // that compute, on each rank
  std::vector<RankIdentity> ranks;
  std::string data;  // one line about the data set
  int64_t parameters = 0;
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
};

// Steps and epochs are counted from 1.
struct StepEvent {
  int64_t step = 0;
  int64_t epoch = 0;
  double loss = 0;
  double rate = 0;
  double samples_per_second = 0;
  std::optional<double> tokens_per_second = {};  // where the model counts tokens
};

// What a model does not report is not there (Metrics).
struct ValidEvent {
  int64_t epoch = 0;
  double loss = 0;
  std::optional<double> accuracy = {};
  std::optional<double> perplexity = {};
  std::vector<std::pair<std::string, double>> named = {};  // the model's own
};

// What a language model has written behind a text.
struct ContinuationEvent {
  int64_t step = 0;    // after which it did
  std::string prompt;  // the text
  std::string text;    // behind it; any bytes
  int64_t tokens = 0;
};

// A world after the first has committed its first step.
struct RecoveredEvent {
  int generation = 0;
  int ranks = 0;
  double seconds = 0;  // since the loss was noticed
};

struct CheckpointEvent {
  std::string path;
  int64_t step = 0;
};

// The run goes on, and what was saved before is whole.
struct CheckpointFailedEvent {
  int64_t step = 0;
  std::string cause;
};

struct DoneEvent {
  int64_t steps = 0;
  int64_t epoch = 0;
  std::optional<double> loss;      // the last step's, if the command made one
  std::optional<double> accuracy;  // the last validation's, if there was one
  double samples_per_second = 0;
  std::optional<double> tokens_per_second = {};
  std::optional<double> flops_per_step = {};  // on all ranks
  std::optional<double> mfu = {};  // what the model needed of what its GPUs can do
  double step_ms = 0;
  double first_step_s = 0;  // from the start of the command
  int64_t peak_memory_bytes = 0;
  int restarts = 0;
  std::string weights_hash;
  StepSplit split;             // mean of rank 0's steps
  std::vector<double> losses;  // those of the whole run, thinned out
  int stop_signal = 0;         // what ended the run early, if anything did
  bool saved = false;          // as a checkpoint, to go on from
  std::string not_written;     // why its last state is not where it was to be
};

// What a run says. Only one rank has one that speaks; the others' is null.
class Reporter {
 public:
  virtual ~Reporter() = default;
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  virtual void start(const StartEvent& event) = 0;
  // Called in each world after the first.
  virtual void ranks(const std::vector<RankIdentity>& ranks) = 0;
  virtual void recovered(const RecoveredEvent& event) = 0;
  // Every committed step; the reporter decides which ones to show.
  virtual void step(const StepEvent& event) = 0;
  virtual void valid(const ValidEvent& event) = 0;
  virtual void continuation(const ContinuationEvent& event) = 0;
  virtual void checkpoint(const CheckpointEvent& event) = 0;
  virtual void checkpoint_failed(const CheckpointFailedEvent& event) = 0;
  virtual void note(const std::string& line) = 0;
  virtual void done(const DoneEvent& event) = 0;

 protected:
  Reporter() = default;
};

}  // namespace cohort
