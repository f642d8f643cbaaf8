// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// Seconds for a slice: fixed + per_sample * samples.
struct ComputeCost {
  double fixed = 0;
  double per_sample = 0;

  double seconds(double samples) const { return fixed + per_sample * samples; }
  bool operator==(const ComputeCost&) const = default;
};

struct BlockCost {
  ComputeCost forward;
  ComputeCost backward;
  ComputeCost recompute;
  // Where backward is cut in two; without a cost of its own, each is half of backward.
  std::optional<ComputeCost> backward_input = {}, backward_weight = {};

  ComputeCost input() const { return backward_input.value_or(half_of_backward()); }
  ComputeCost weight() const { return backward_weight.value_or(half_of_backward()); }
  // Changes each cost that it has.
  template <typename Change>
  void change_all(const Change& change) {
    for (ComputeCost* cost : {&forward, &backward, &recompute}) change(*cost);
    for (auto* cost : {&backward_input, &backward_weight})
      if (*cost) change(**cost);
  }
  bool operator==(const BlockCost&) const = default;

 private:
  ComputeCost half_of_backward() const {
    return {backward.fixed / 2, backward.per_sample / 2};
  }
};

// Seconds for bytes: latency + bytes / bytes_per_second.
struct LinkCost {
  double latency = 0;
  // For a group, what nccl-tests calls busbw: the bytes each rank must move over time.
  double bytes_per_second = std::numeric_limits<double>::infinity();
  // Whether it works beside computation. If not, as where no thread but the rank's own
  // moves the bytes, the work is done by the rank when it waits for it.
  bool hidden = true;

  double seconds(double bytes) const { return latency + bytes / bytes_per_second; }
  bool operator==(const LinkCost&) const = default;
};

// Where bytes go: the rows that may say what that costs.
struct Route {
  // A group's own; a link's, as "0>1", and "pp" for all links.
  std::vector<std::string> names;  // most particular first
  bool crosses_nodes = false;      // somewhere in the world
};

// What actions cost, given or measured.
struct CostTable {
  double samples = 1;  // per slice
  // Ranks are placed on nodes in their order, so many on each. 0: one node has all.
  int ranks_per_node = 0;
  std::vector<BlockCost> blocks;
  LinkCost update;  // per byte of weights
  LinkCost copy;    // between a device and its host
  ComputeCost free, commit;
  // By name and call ("dp/Gather"), where calls differ, by name ("dp"), or for all
  // names that are not there ("*/Gather", "*"). What crosses nodes looks first for the
  // same with "@nodes" behind it. The most particular one counts.
  std::map<std::string, LinkCost> links;

  // Null: there is no row. `call` is the name of a kind, or of a call inside a block.
  const LinkCost* find(const Route& route, std::string_view call) const;
  const LinkCost& link(const std::string& group, ActionKind kind) const;
  // Whether communication there works beside computation.
  bool hidden(const Route& route) const;
  bool hidden(const std::string& group) const { return hidden(Route{{group}}); }
};

// Assumptions about a machine on which nothing was measured: a rank is a CPU core, and
// ranks share its memory.
struct MachineGuess {
  double flops = 20e9;         // per second; a forward: 2 per parameter and sample
  double memory_bytes = 10e9;  // moved per second, activations; a backward: twice both
  double link_bytes = 10e9;
  double link_latency = 5e-6;
  double action_latency = 5e-6;
};
CostTable guess_costs(std::span<const BlockSpec> blocks, double samples,
                      const MachineGuess& machine = {});

// The same on a pipeline with places of these speeds (empty: all alike), where the
// table has the seconds that blocks take at the fastest one.
CostTable at_places(CostTable costs, std::span<const Stage> stages,
                    std::span<const double> speeds);

// Bytes each rank of a group must move for a byte of the operation, on a ring.
double ring_factor(ActionKind kind, int ranks);
double ring_factor(CallOp op, int ranks);

// Columns what,name,fixed_us,per_sample_us,gb_per_s,hidden; docs/step.md has them.
// ConfigError with the line for a text that is no table, or if rows of it are missing.
std::string to_csv(const CostTable& costs);
CostTable costs_from_csv(std::string_view text);

// For a table without blocks: its links, all of them, and what else it has; the rest
// of the other stays.
void take_links(const CostTable& given, CostTable& costs);

}  // namespace cohort
