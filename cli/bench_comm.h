// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/comm/world.h"
#include "cohort/step/cost_table.h"

namespace cohort::cli {

// `cohort bench comm`: how long collectives take, beside a bare loop over the same
// memory ("limit"), measured in turns in one run.
struct BenchCommArgs {
  int ranks = 2;
  std::vector<std::string> backends = {"shm", "gloo"};
  std::vector<std::string> ops = {"all_reduce"};
  std::vector<int64_t> bytes = {4'000, 100'000'000};
  std::string device = "cpu";  // or cuda: tensors of each rank's GPU
  int gpu = 0;                 // this rank's
  bool json = false;
  double turn_seconds = 0.06;  // about how long a measurement's turn takes
  std::string costs_out;       // file for the rows as links of a table of costs
  std::string link = "*";      // what those links are called there
};

inline constexpr const char* kBenchCommHelp =
    "p50, p99 and mean in microseconds, rates in GB/s (of the median) as\n"
    "nccl-tests defines them.\n\n"
    "Examples:\n  cohort bench comm -n 2 --backend shm,gloo --bytes 4K,100M\n"
    "  cohort bench comm --op all_gather,broadcast --bytes 1M --json\n"
    "  cohort bench comm --device cuda --backend nccl -n 2\n"
    "  cohort bench comm --device cuda --backend shm -n 2    (on one GPU)\n"
    "  cohort bench comm --backend shm --op all_reduce,exchange --costs-out "
    "links.csv\n";

// Starts the ranks and prints one row per measurement. Returns the exit code. Throws
// ConfigError for an operation, backend or size that cannot be measured.
int run_bench_comm(const BenchCommArgs& args);

// One measurement, as rank 0 saw it; times in microseconds, rates in GB/s as
// nccl-tests defines them.
struct BenchCommRow {
  std::string backend;
  std::string op;
  int64_t bytes = 0;
  int ranks = 0;
  std::string memory;
  double p50 = 0;
  double p99 = 0;
  double mean = 0;
  double algbw = 0;
  double busbw = 0;
};

using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(const std::string& backend)>;
using EmitRow = std::function<void(const BenchCommRow&)>;

// What every rank runs; `emit` is called on rank 0.
void measure_comm(const BenchCommArgs& args, const MakeCommunicator& make,
                  const EmitRow& emit);

// Bytes on the bus for each byte of the operation: nccl-tests' PERFORMANCE.md.
double bus_factor(const std::string& op, int ranks);

// Links of a table of costs (docs/step.md), lines through the medians of one backend:
// a row for each operation, one for all collectives, and "pp" for exchanges. `hidden`:
// they work beside computation.
CostTable link_costs(std::span<const BenchCommRow> rows, const std::string& link,
                     bool hidden);
void check_bench_comm(const BenchCommArgs& args);
std::string format_row(const BenchCommRow& row, bool json);
std::string format_header();

}  // namespace cohort::cli
