// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
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

  bool operator==(const BlockCost&) const = default;
};

// Seconds for bytes: latency + bytes / bytes_per_second.
struct LinkCost {
  double latency = 0;
  // Of a group: the rate nccl-tests calls busbw, what each rank must move over time.
  double bytes_per_second = std::numeric_limits<double>::infinity();
  // Whether it works beside computation. If not, as where no thread but the rank's own
  // moves the bytes, the work is done by the rank when it waits for it.
  bool hidden = true;

  double seconds(double bytes) const { return latency + bytes / bytes_per_second; }
  bool operator==(const LinkCost&) const = default;
};

// What actions cost, given or measured.
struct CostTable {
  double samples = 1;  // of a slice
  std::vector<BlockCost> blocks;
  LinkCost update;  // per byte of weights
  LinkCost copy;    // between a device and its host
  ComputeCost free, commit;
  // By group and kind ("dp/Gather"), where kinds differ, by group ("dp"), or for all
  // groups that are not there ("*"). The most particular one counts.
  std::map<std::string, LinkCost> links;

  const LinkCost& link(const std::string& group, ActionKind kind) const;
  // Whether a group's communication works beside computation.
  bool hidden(const std::string& group) const;
};

// ConfigError, with what is wrong, unless the table has the step's blocks and groups.
void require_costs_of(const Schedule& schedule, const CostTable& costs);

// Assumptions about a machine on which nothing was measured: a rank is a CPU core, and
// ranks share its memory.
struct MachineGuess {
  double flops = 20e9;         // a second: forward of a block takes 2 a parameter and
  double memory_bytes = 10e9;  // sample, and moves its activations; backward twice that
  double link_bytes = 10e9;
  double link_latency = 5e-6;
  double action_latency = 5e-6;
};
CostTable guess_costs(std::span<const BlockSpec> blocks, double samples,
                      const MachineGuess& machine = {});

// Bytes each rank of a group must move for a byte of the operation, on a ring.
double ring_factor(ActionKind kind, int ranks);

// Columns what,name,fixed_us,per_sample_us,gb_per_s,hidden; docs/step.md has them.
// ConfigError with the line for a text that is no table.
std::string to_csv(const CostTable& costs);
CostTable costs_from_csv(std::string_view text);

}  // namespace cohort
