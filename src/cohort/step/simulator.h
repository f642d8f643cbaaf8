// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

struct MemoryPoint {
  double time = 0;    // seconds since the step began
  int64_t bytes = 0;  // held from then on

  bool operator==(const MemoryPoint&) const = default;
};

// How a rank of a role spends a step.
struct RoleUse {
  double compute = 0;        // seconds lane 0 is busy, calls inside blocks too
  double communication = 0;  // in which some group's lane is
  double hidden = 0;         // the part of it under computation
};

struct Simulation {
  StepTimes times;
  double step = 0;             // seconds until the last rank has committed
  std::vector<RoleUse> roles;  // by role, as are the curves
  std::vector<std::vector<MemoryPoint>> memory;
};

// When every action of every role runs on a machine with these costs. Lanes of a rank
// work side by side; a collective begins when all its ranks have come to it, a transfer
// when both ends have; ranks of a role are equally fast. A block computes an equal part
// of its time before each call inside it, and goes on when the call is done. The
// schedule must be one that the checker accepts.
Simulation simulate(const Schedule& schedule, const CostTable& costs);

// What such times mean, whether they were predicted or measured.
double step_seconds(const StepTimes& times);
RoleUse use_of(const Role& role, const std::vector<ActionTime>& times);
std::vector<MemoryPoint> memory_over_time(const Schedule& schedule, const Role& role,
                                          const std::vector<ActionTime>& times);

}  // namespace cohort
