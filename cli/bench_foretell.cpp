// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_foretell.h"

#include <optional>
#include <ostream>

#include "cli/bench_parts.h"
#include "cli/cuda_case.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/nn/without_memory.h"
#include "cohort/step/action_costs.h"
#include "cohort/step/layout.h"
#include "cohort/step/link_profiles.h"
#include "cohort/step/simulator.h"

namespace cohort::cli {
namespace {

struct ForetoldRow {
  int ranks = 1;
  Layout layout;
  int64_t batch = 0;  // samples of all ranks together
  double step_s = 0;
  double overlapped_s = 0;  // if communication ran beside computation

  double rate(double seconds) const { return static_cast<double>(batch) / seconds; }
};

CostTable foretold_costs(const BenchTrainArgs& args, double samples) {
  CostTable costs = costs_from_csv(read_file(args.costs, ErrorKind::kConfig));
  if (!args.links.empty()) take_links(links_of(find_link_profile(args.links)), costs);
  costs.samples = samples;
  return costs;
}

double simulated(const Schedule& schedule, CostTable costs, bool beside) {
  for (auto& [name, link] : costs.links) link.hidden = beside;
  return simulate(schedule, costs).step;
}

// The engine has its collectives in the stream that computes, so nothing hides them.
ForetoldRow foretell(const BenchTrainArgs& args, const CudaCase& bench,
                     const std::vector<BlockSpec>& specs, int ranks) {
  ForetoldRow row{.ranks = ranks, .layout = parse_layout(args.layout, ranks)};
  const int64_t samples = bench.batch_of(args);
  row.batch = samples * ranks;
  const CostTable costs = foretold_costs(args, static_cast<double>(samples));
  const Schedule schedule =
      generate(specs, row.layout, cuda_step(bench, args, ranks, MemoryIn::kDevice));
  require_costs_of(schedule, costs);
  row.step_s = simulated(schedule, costs, /*beside=*/false);
  row.overlapped_s = simulated(schedule, costs, /*beside=*/true);
  return row;
}

std::string source_of(const BenchTrainArgs& args) {
  const std::string links =
      args.links.empty() ? "" : text("; links ", find_link_profile(args.links).source);
  return text("costs of ", args.costs, links);
}

std::string foretold_json(const ForetoldRow& row, const BenchTrainArgs& args) {
  JsonObject object;
  object.add("case", args.name)
      .add("device", "cuda")
      .add("precision", args.precision)
      .add("ranks", row.ranks)
      .add("layout", row.layout.text())
      .add("batch", row.batch)
      .add("step_ms", 1e3 * row.step_s)
      .add("samples_per_second", row.rate(row.step_s))
      .add("overlapped_step_ms", 1e3 * row.overlapped_s)
      .add("state", "not run")
      .add("from", source_of(args));
  return object.text();
}

std::string foretold_text(const ForetoldRow& row, const BenchTrainArgs& args) {
  const auto ms = [](double seconds) { return format_fixed(1e3 * seconds, 2) + " ms"; };
  const auto rate = [&](double seconds) {
    return format_fixed(row.rate(seconds), 0) + " samples/s";
  };
  return text(args.name, ", ", row.ranks, " GPUs, shard=", row.layout.shard, ", batch ",
              row.batch, ", ", args.precision, ": ", ms(row.step_s), " per step, ",
              rate(row.step_s), " (not run)", "\n  with overlap         ",
              ms(row.overlapped_s), ", ", rate(row.overlapped_s),
              "\n  foretold from        ", source_of(args));
}

}  // namespace

void foretell_cuda(const BenchTrainArgs& args, std::ostream& out) {
  const CudaCase& bench = find_cuda_case(args.name);
  const ModelsWithoutMemory shapes_alone;
  const std::vector<BlockSpec> specs = specs_of(bench.make());
  for (const int ranks : parse_rank_list(args.ranks)) {
    const ForetoldRow row = foretell(args, bench, specs, ranks);
    out << (args.json ? foretold_json(row, args) : foretold_text(row, args)) << "\n";
  }
}

}  // namespace cohort::cli
