// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "cli/bench_comm.h"
#include "cohort/step/cost_fit.h"

namespace cohort::cli {
namespace {

// What a table of costs calls an operation, in a group's lane and inside a block.
const std::map<std::string, std::vector<std::string>> kCallsOfOps = {
    {"all_reduce", {"Reduce", "AllReduce"}},
    {"all_gather", {"Gather", "AllGather"}},
    {"reduce_scatter", {"ReduceScatter"}},
    {"all_to_all", {"AllToAll"}},
    {"broadcast", {"Broadcast"}},
    {"exchange", {"Mirror"}}};

}  // namespace

CostTable link_costs(std::span<const BenchCommRow> rows, const std::string& link,
                     bool hidden) {
  // Buckets lie in memory that peers see, where there is any.
  const bool shared = std::any_of(
      rows.begin(), rows.end(), [](const auto& row) { return row.memory == "shared"; });
  std::map<std::string, std::vector<TimedCall>> calls;  // by name
  for (const auto& row : rows) {
    const auto names = kCallsOfOps.find(row.op);
    if (row.backend == "limit" || names == kCallsOfOps.end()) continue;
    if (shared && row.memory != "shared") continue;
    const TimedCall call{static_cast<double>(row.bytes) * bus_factor(row.op, row.ranks),
                         row.p50 / 1e6};
    for (const auto& name : names->second) calls[link + "/" + name].push_back(call);
    calls[row.op == "exchange" ? "pp" : link].push_back(call);
  }
  CostTable costs;
  for (const auto& [name, times] : calls) {
    costs.links[name] = fit_link(times);
    costs.links[name].hidden = hidden;
  }
  return costs;
}

}  // namespace cohort::cli
