// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_foretell.h"

#include <optional>
#include <ostream>

#include "cli/bench_parts.h"
#include "cli/cuda_case.h"
#include "cli/step_options.h"
#include "cohort/core/error.h"
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

// The table is that of one GPU. Ranks that compute a layer together have a share each
// of its operations, and start as many kernels; a block that has none takes its whole
// time on all.
void share_blocks(const CudaCase& bench, std::span<const BlockMeasure> parts,
                  CostTable& costs) {
  const auto whole = count_cuda_blocks(bench);
  if (!whole || costs.blocks.size() != parts.size()) return;
  for (size_t b = 0; b < parts.size(); ++b) {
    const double all = whole->at(b).flops.at(costs.samples);
    if (all == 0) continue;
    const double share = parts[b].flops.at(costs.samples) / all;
    costs.blocks[b].change_all([&](ComputeCost& cost) { cost.per_sample *= share; });
  }
}

CostTable foretold_costs(const BenchTrainArgs& args, double samples) {
  CostTable costs = read_costs(args.costs);
  if (!args.links.empty()) take_links(links_of(find_link_profile(args.links)), costs);
  costs.samples = samples;
  return costs;
}

double simulated(const Schedule& schedule, CostTable costs, bool beside) {
  for (auto& [name, link] : costs.links) link.hidden = beside;
  return simulate(schedule, costs).step;
}

// The engine has its collectives in the stream that computes, so nothing hides them.
ForetoldRow foretell(const BenchTrainArgs& args, const CudaCase& bench, int ranks) {
  ForetoldRow row{.ranks = ranks, .layout = parse_layout(args.layout, ranks)};
  const int64_t batch = bench.batch_of(args);
  row.batch = batch * ranks;
  const auto samples = static_cast<double>(batch);
  CostTable costs = foretold_costs(args, samples);
  const GeneratorOptions step = cuda_step(bench, args, ranks, MemoryIn::kDevice);
  const TensorPart part = cuda_part(row.layout, /*rank=*/0);
  const ModelsWithoutMemory shapes_alone;
  std::vector<BlockSpec> specs = specs_of(bench.make(part));
  if (const auto needs = count_cuda_blocks(bench, part)) {
    set_bytes(*needs, samples, step.precision.compute, specs);
    if (part.size > 1) share_blocks(bench, *needs, costs);
  }
  const Schedule schedule = generate(specs, row.layout, step);
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
  return text(args.name, ", ", row.ranks, " GPUs, ", layout_words(row.layout),
              ", batch ", row.batch, ", ", args.precision, ": ", ms(row.step_s),
              " per step, ", rate(row.step_s), " (not run)",
              "\n  with overlap         ", ms(row.overlapped_s), ", ",
              rate(row.overlapped_s), "\n  foretold from        ", source_of(args));
}

}  // namespace

void foretell_cuda(const BenchTrainArgs& args, std::ostream& out) {
  const CudaCase& bench = find_cuda_case(args.name);
  for (const int ranks : parse_rank_list(args.ranks)) {
    const ForetoldRow row = foretell(args, bench, ranks);
    out << (args.json ? foretold_json(row, args) : foretold_text(row, args)) << "\n";
  }
}

}  // namespace cohort::cli
