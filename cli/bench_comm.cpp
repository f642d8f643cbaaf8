// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_comm.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>

#include "cli/exit_of_error.h"
#include "cohort/comm/backends.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/json.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/launch/agent.h"
#include "cohort/train/rank_gpu.h"

namespace cohort::cli {
namespace {

const std::vector<std::string> kOps = {"all_reduce", "reduce_scatter", "all_gather",
                                       "broadcast",  "all_to_all",     "exchange",
                                       "barrier"};

template <typename... Numbers>
std::string format(const char* pattern, Numbers... numbers) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), pattern, numbers...);
  return buffer;
}

// NCCL must be told where ranks share a GPU.
void choose_gpu_for_bench(const World& world, BenchCommArgs& args,
                          ConnectOptions& options) {
  if (args.device != "cuda") return;
  require_cuda("bench.comm");
  args.gpu = gpu_of(world);
  options.nccl_share_gpu = world.local_size > cuda_device_count();
}

int run_rank(BenchCommArgs args) {
  const World world = world_from_env();
  ConnectOptions options;
  choose_gpu_for_bench(world, args, options);
  const auto store = join(world, options);
  bool hidden = true;
  const auto make = [&](const std::string& backend) {
    options.backend = backend;
    auto comm = connect(world, *store, options);
    hidden = !shares_memory(*comm);
    if (args.device != "cuda") return comm;
    return with_tensors_of_gpu(std::move(comm), args.gpu, options, /*windows=*/true)
        .comm;
  };
  if (world.rank == 0 && !args.json) std::fputs(format_header().c_str(), stdout);
  std::vector<BenchCommRow> rows;
  measure_comm(args, make, [&](const BenchCommRow& row) {
    std::fputs(format_row(row, args.json).c_str(), stdout);
    std::fflush(stdout);
    rows.push_back(row);
  });
  if (world.rank == 0 && !args.costs_out.empty())
    write_file_atomically(
        args.costs_out,
        text("# bench comm, ", args.ranks, " ranks, ", args.backends[0], "\n",
             to_csv(link_costs(rows, args.link, hidden))),
        ErrorKind::kConfig);
  return 0;
}

// Two of one backend in one world would wait for each other.
void require_backends(const BenchCommArgs& args) {
  const World world{.size = args.ranks, .local_size = args.ranks};
  std::set<std::string_view> names;
  for (const auto& backend : args.backends) {
    const auto [name, is_new] = names.insert(find_backend(backend, world).name);
    if (!is_new)
      throw ConfigError(text("[bench.comm] --backend ", join(args.backends, ","), ": ",
                             *name, " twice; legal: each once"));
  }
}

}  // namespace

void check_bench_comm(const BenchCommArgs& args) {
  for (const auto& op : args.ops) {
    if (std::find(kOps.begin(), kOps.end(), op) != kOps.end()) continue;
    throw ConfigError(text("[bench.comm] unknown operation '", op, "'; nearest: ",
                           nearest(op, kOps), "; legal: ", join(kOps, ", ")));
  }
  if (args.device != "cpu" && args.device != "cuda")
    throw ConfigError(
        text("[bench.comm] --device '", args.device, "'; legal: cpu, cuda"));
  if (args.device == "cuda" && !cuda_is_built()) require_cuda("bench.comm");  // refuses
  const bool positive = std::all_of(args.bytes.begin(), args.bytes.end(),
                                    [](int64_t bytes) { return bytes >= 4; });
  if (!positive || args.bytes.empty()) {
    throw ConfigError("[bench.comm] --bytes: legal are sizes of at least 4 bytes");
  }
  if (args.ranks < 1 || args.backends.empty() || args.ops.empty()) {
    throw ConfigError(text("[bench.comm] ", args.ranks, " ranks, ",
                           args.backends.size(), " backends, ", args.ops.size(),
                           " operations; legal: at least one of each"));
  }
  require_backends(args);
  if (!args.costs_out.empty() &&
      (args.ranks < 2 || args.backends.size() > 1 || args.bytes.size() < 2))
    throw ConfigError(text("[bench.comm] --costs-out with ", args.ranks, " ranks, ",
                           args.backends.size(), " backends and ", args.bytes.size(),
                           " sizes; legal: two ranks and two sizes or more, and one "
                           "backend"));
  if (args.link.empty() || args.link == "pp" ||
      args.link.find_first_of(",/@#\n") != std::string::npos)
    throw ConfigError(text("[bench.comm] --link '", args.link,
                           "'; legal: the name of a group, such as tp, or *"));
}

int run_bench_comm(const BenchCommArgs& args) {
  check_bench_comm(args);
  LaunchOptions options;
  options.pin = false;  // gloo has threads beside the rank's own
  options.ranks = args.ranks;
  options.json = args.json;
  options.threads = 1;
  options.body = as_rank([&] { return run_rank(args); });
  return launch(options).exit_code;
}

std::string format_header() {
  return format("%-8s %-15s %12s %6s %-9s %12s %12s %12s %9s %9s\n", "backend", "op",
                "bytes", "ranks", "memory", "p50 us", "p99 us", "mean us", "algbw",
                "busbw");
}

std::string format_row(const BenchCommRow& row, bool json) {
  if (json) {
    return JsonObject()
               .add("backend", row.backend)
               .add("op", row.op)
               .add("bytes", row.bytes)
               .add("ranks", row.ranks)
               .add("memory", row.memory)
               .add("p50", row.p50)
               .add("p99", row.p99)
               .add("mean", row.mean)
               .add("algbw", row.algbw)
               .add("busbw", row.busbw)
               .text() +
           "\n";
  }
  return format("%-8s %-15s %12lld %6d %-9s %12.2f %12.2f %12.2f %9.3f %9.3f\n",
                row.backend.c_str(), row.op.c_str(), static_cast<long long>(row.bytes),
                row.ranks, row.memory.c_str(), row.p50, row.p99, row.mean, row.algbw,
                row.busbw);
}

}  // namespace cohort::cli
