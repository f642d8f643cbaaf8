// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/plain_loop.h"
#include "cohort/communicator.h"
#include "cohort/engine/executor.h"

namespace cohort::cli {

// What is timed, and how often.
struct BenchWork {
  std::string name;
  double samples = 0;  // per step, by all ranks
  int warmup = 0;      // steps
  int steps = 0;       // per round and variant
  double rate = 0;
  // The second variant is plain data parallelism; else it is the first one without
  // communication.
  bool beside_data_parallel = false;
};

// One way of doing the same work.
struct BenchVariant {
  std::unique_ptr<Chain> chain;
  std::unique_ptr<Executor> executor;
  std::function<Batch(int64_t step, int slice)> batch;
  std::vector<double> seconds = {};
  std::vector<double> waits = {};
};

// What one benchmark found, as seen by rank 0; seconds per step.
struct BenchRow {
  double step_s = 0;
  double wait_s = 0;
  double comm_hidden = 1;
  std::optional<double> no_comm_s = std::nullopt;
  std::optional<double> unsharded_s = std::nullopt;
  std::optional<double> plain_s = std::nullopt;
};

// Times whole steps: the variants take turns, so that drift hits all alike. `plain` may
// be null; rank 0 alone runs it. Collective.
BenchRow time_steps(const BenchWork& work, Communicator& comm,
                    std::vector<BenchVariant>& variants, PlainLoop* plain);

// Rank 0 prints it on stdout, the others nothing.
void print_row(const BenchRow& row, const BenchWork& work, const Communicator& comm,
               bool json);

}  // namespace cohort::cli
