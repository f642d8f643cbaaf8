// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cuda.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/bench_cuda_costs.h"
#include "cli/bench_cuda_ranks.h"
#include "cli/bench_foretell.h"
#include "cli/bench_parts.h"
#include "cli/cuda_speed.h"
#include "cli/cuda_variant.h"
#include "cli/kernel_times.h"
#include "cohort/comm/local_store.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/train/gpu_peak.h"
#include "cohort/train/rank_gpu.h"

namespace cohort::cli {
namespace {

constexpr int kCudaRounds = 3;  // the variants take turns
constexpr int kWatchedSteps = 5;

struct CudaRow {
  int64_t batch = 0;
  double step_s = 0, host_s = 0, uncaptured_s = 0, uncaptured_host_s = 0, first_s = 0;
  double loss = 0;
  CudaSpeed speed;
  int64_t peak_bytes = 0, planned_bytes = 0;
  std::vector<KernelTime> kernels;  // timed over kWatchedSteps
};

CudaRow measure(const CudaCase& bench, const BenchTrainArgs& args) {
  CudaRow row{.batch = bench.batch_of(args)};
  const Batch batch = cuda_batch(bench, row.batch);
  LocalStore store;
  const auto comm = connect(World{}, store, {.backend = "local"});
  CudaVariant captured(bench, args, batch, *comm, {.capture = true});
  row.peak_bytes = captured.peak_bytes();  // before there are two of them
  row.planned_bytes = captured.planned_bytes();
  CudaVariant uncaptured(bench, args, batch, *comm, {.capture = false});
  for (int round = 0; round < kCudaRounds; ++round) {
    captured.take_turn();
    uncaptured.take_turn();
  }
  row.step_s = captured.step_s();
  const auto compute = cuda_step(bench, args, 1, MemoryIn::kDevice).precision.compute;
  row.speed =
      speed_of(bench, row.batch, row.step_s, peak_flops(cuda_device_name(0), compute));
  row.uncaptured_s = uncaptured.step_s();
  row.host_s = captured.host_s();
  row.uncaptured_host_s = uncaptured.host_s();
  row.first_s = captured.first_s();
  row.loss = captured.loss();
  if (args.kernels)
    row.kernels = kernel_times(at::kCUDA, [&] { captured.run(kWatchedSteps); });
  return row;
}

std::string cuda_json_row(const CudaRow& row, const CudaCase& bench,
                          const BenchTrainArgs& args) {
  JsonObject object;
  object.add("case", bench.name)
      .add("device", "cuda")
      .add("precision", args.precision)
      .add("batch", row.batch)
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", static_cast<double>(row.batch) / row.step_s)
      .add("host_ms", 1e3 * row.host_s)
      .add("host_share", row.host_s / row.step_s)
      .add("uncaptured_step_ms", 1e3 * row.uncaptured_s)
      .add("uncaptured_host_ms", 1e3 * row.uncaptured_host_s)
      .add("first_step_s", row.first_s)
      .add("peak_memory_bytes", row.peak_bytes)
      .add("planned_memory_bytes", row.planned_bytes)
      .add("loss", row.loss)
      .add("state", "measured");
  add_speed(row.speed, object);
  return object.text();
}

std::string cuda_text_row(const CudaRow& row, const CudaCase& bench,
                          const BenchTrainArgs& args) {
  const auto ms = [](double seconds) { return format_fixed(1e3 * seconds, 2) + " ms"; };
  const auto rate = [&](double seconds) {
    const auto each = static_cast<double>(std::max<int64_t>(1, bench.tokens));
    return format_fixed(each * static_cast<double>(row.batch) / seconds, 0) +
           (bench.tokens > 0 ? " tokens/s" : " samples/s");
  };
  return text(bench.name, ", batch ", row.batch, ", ", args.precision,
              ", one GPU: ", ms(row.step_s), " per step, ", rate(row.step_s),
              row.speed.text(), "\n  host busy            ", ms(row.host_s), ", ",
              format_fixed(100 * row.host_s / row.step_s, 2), " % of the step",
              "\n  kernel by kernel     ", ms(row.uncaptured_s), ", ",
              rate(row.uncaptured_s), ", host ", ms(row.uncaptured_host_s),
              "\n  memory, first step   ",
              format_bytes(static_cast<double>(row.peak_bytes)),
              " (planned: ", format_bytes(static_cast<double>(row.planned_bytes)),
              "), ", format_duration(row.first_s));
}

// A line for each kernel, as long as any takes a thousandth of the step.
void print_kernels(const CudaRow& row, const CudaCase& bench, bool json) {
  for (const auto& kernel : row.kernels) {
    const double seconds = kernel.seconds / kWatchedSteps;
    const double launches = static_cast<double>(kernel.launches) / kWatchedSteps;
    if (seconds < 1e-3 * row.step_s) break;
    if (json)
      std::puts(JsonObject()
                    .add("case", bench.name)
                    .add("kernel", kernel.name)
                    .add("ms", 1e3 * seconds)
                    .add("launches", launches)
                    .add("share", seconds / row.step_s)
                    .text()
                    .c_str());
    else
      std::printf("  %7.3f ms %5.1f %% %6.0f x  %s\n", 1e3 * seconds,
                  100 * seconds / row.step_s, launches, kernel.name.c_str());
  }
}

// One rank, in this process.
void bench_one_gpu(const CudaCase& bench, const BenchTrainArgs& args) {
  require_cuda("bench");
  set_cuda_math({.tf32 = true, .search = true});
  const CudaRow row = measure(bench, args);
  const auto format = args.json ? &cuda_json_row : &cuda_text_row;
  std::puts(format(row, bench, args).c_str());
  print_kernels(row, bench, args.json);
  if (!args.costs_out.empty()) write_cuda_costs(bench, args);
}

// ConfigError for flags that do not go together.
void check_bench_cuda(const BenchTrainArgs& args, bool alone) {
  if (args.exact)
    throw ConfigError("[bench] --device cuda with --exact; legal: without");
  if (!args.costs_out.empty() && (!alone || !args.costs.empty()))
    throw ConfigError(
        "[bench] --costs-out measures one GPU; legal: without --costs, --layout, and "
        "-n 1");
  if (args.kernels && (!alone || !args.costs.empty()))
    throw ConfigError(
        "[bench] --kernels watches one GPU; legal: without --costs, --layout, and -n "
        "1");
  if (!args.links.empty() && args.costs.empty())
    throw ConfigError("[bench] --links goes with --costs F.csv");
}

}  // namespace

int run_bench_cuda(const BenchTrainArgs& args) {
  const CudaCase& bench = find_cuda_case(args.name);
  const auto ranks = parse_rank_list(args.ranks);
  const bool alone =
      ranks == std::vector{1} && args.layout.empty() && args.backend != "nccl";
  check_bench_cuda(args, alone);
  cuda_step(bench, args, 1,
            MemoryIn::kDevice);  // refuses a precision that there is not
  if (!args.costs.empty()) {
    foretell_cuda(args, std::cout);
    return 0;
  }
  if (!alone) return bench_cuda_ranks(bench, args, ranks);
  try {
    bench_one_gpu(bench, args);
  } catch (const c10::OutOfMemoryError&) {
    throw out_of_gpu(bench, args);
  }
  return 0;
}

}  // namespace cohort::cli
