// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cuda_ranks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>

#include "cli/cuda_speed.h"
#include "cli/cuda_variant.h"
#include "cli/exit_of_error.h"
#include "cli/node_gpus.h"
#include "cohort/comm/gpu_relay.h"
#include "cohort/comm/world.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_math.h"
#include "cohort/launch/agent.h"
#include "cohort/train/gpu_peak.h"
#include "cohort/train/rank_gpu.h"

namespace cohort::cli {
namespace {

constexpr int kRankRounds = 3;

struct RanksRow {
  Layout layout;
  int64_t batch = 0;  // samples of all ranks together
  double step_s = 0, first_s = 0, loss = 0;
  CudaSpeed speed;
  int64_t peak_bytes = 0;

  double rate() const { return static_cast<double>(batch) / step_s; }
};

RanksRow measure_ranks(const CudaCase& bench, const BenchTrainArgs& args,
                       Communicator& comm, int gpu) {
  const int64_t samples = bench.batch_of(args);
  RanksRow row{.layout = parse_layout(args.layout, comm.size()),
               .batch = samples * comm.size()};
  CudaVariant steps(bench, args, cuda_batch(bench, samples, gpu), comm,
                    {.layout = row.layout, .gpu = gpu});
  for (int round = 0; round < kRankRounds; ++round) {
    comm.barrier().wait();
    steps.take_turn();
  }
  row.step_s = steps.step_s();
  const auto compute =
      cuda_step(bench, args, comm.size(), MemoryIn::kDevice).precision.compute;
  row.speed = speed_of(bench, row.batch, row.step_s, peak_of_gpus(comm, gpu, compute));
  row.first_s = steps.first_s();
  row.loss = steps.loss();
  row.peak_bytes = steps.peak_bytes();
  return row;
}

std::string ranks_json(const RanksRow& row, const BenchTrainArgs& args,
                       const Communicator& comm) {
  JsonObject object;
  object.add("case", args.name)
      .add("device", "cuda")
      .add("precision", args.precision)
      .add("backend", comm.backend())
      .add("ranks", comm.size())
      .add("layout", row.layout.text())
      .add("batch", row.batch)
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", row.rate())
      .add("first_step_s", row.first_s)
      .add("peak_memory_bytes", row.peak_bytes)
      .add("loss", row.loss)
      .add("state", "measured");
  add_speed(row.speed, object);
  return object.text();
}

std::string ranks_text(const RanksRow& row, const BenchTrainArgs& args,
                       const Communicator& comm) {
  return text(args.name, ", ", comm.size(), " GPUs (", comm.backend(), "), ",
              layout_words(row.layout), ", batch ", row.batch, ", ", args.precision,
              ": ", format_fixed(1e3 * row.step_s, 2), " ms per step, ",
              format_fixed(row.rate(), 0), " samples/s");
}

int run_cuda_rank(const CudaCase& bench, const BenchTrainArgs& args) {
  require_cuda("bench");
  set_cuda_math({.tf32 = true, .search = true});
  const World world = world_from_env();
  const int gpu = gpu_of(world);
  const ConnectOptions options{.backend = args.backend, .gpu = cuda_device_id(gpu)};
  const auto store = join(world, options);
  const auto comm = with_gpu_relay(connect(world, *store, options), gpu, options);
  const RanksRow row = measure_ranks(bench, args, *comm, gpu);
  if (world.rank == 0) {
    const auto format = args.json ? &ranks_json : &ranks_text;
    std::puts(format(row, args, *comm).c_str());
    std::fflush(stdout);
  }
  comm->barrier().wait();
  return 0;
}

int run_cuda_rank_in_memory(const CudaCase& bench, const BenchTrainArgs& args) {
  try {
    return run_cuda_rank(bench, args);
  } catch (const c10::OutOfMemoryError&) {
    throw out_of_gpu(bench, args);
  }
}

void require_gpus(int ranks) {
  const std::string why = why_no_nccl_ranks(look_for_gpus(), ranks, /*shares=*/false);
  if (!why.empty()) throw ConfigError(text("[bench] ", why));
}

}  // namespace

int bench_cuda_ranks(const CudaCase& bench, const BenchTrainArgs& args,
                     std::span<const int> ranks) {
  if (!cuda_is_built()) require_cuda("bench");  // refuses
  for (const int number : ranks)
    require_parts(bench, parse_layout(args.layout, number));
  if (args.backend == "nccl") require_gpus(std::ranges::max(ranks));
  for (const int number : ranks) {
    LaunchOptions options;
    options.ranks = number;
    options.json = args.json;
    options.body = as_rank([&] { return run_cuda_rank_in_memory(bench, args); });
    if (const int code = launch(options).exit_code; code != 0) return code;
  }
  return 0;
}

ConfigError out_of_gpu(const CudaCase& bench, const BenchTrainArgs& args) {
  return ConfigError(text("[bench] a GPU has too little memory for ", bench.name,
                          " at batch ", bench.batch_of(args), " per rank, ",
                          args.precision, "; legal: a smaller --batch"));
}

}  // namespace cohort::cli
