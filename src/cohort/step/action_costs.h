// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"

namespace cohort {

// A table of costs read for one schedule, which groups and links cross nodes included.
// Keeps references to both; what has no row costs nothing.
class ActionCosts {
 public:
  ActionCosts(const Schedule& schedule, const CostTable& costs);

  // Seconds of an action, without the calls inside its block. A Send and its Recv have
  // the same.
  double seconds(const Action& action) const;
  double seconds(const InnerCall& call) const;
  // Null: there is no row.
  const LinkCost* find(const Action& action) const;  // in a group or on a link
  const LinkCost* find(const InnerCall& call) const;
  // Whether what a lane does works beside computation.
  bool hidden(int lane) const;

 private:
  double block_seconds(const Action& action) const;
  double bus_seconds(const Action& action, const std::vector<double>& bytes) const;

  const Schedule& schedule_;
  const CostTable& costs_;
  std::vector<Route> groups_;
  std::vector<Route> lanes_;  // none where nothing is communicated
  // By bucket: bytes of the host's memory that an update by a device reads, and writes
  // again; and that a Gather brings to it.
  std::vector<double> on_host_, gathered_;
};

// ConfigError, with what is wrong, unless the table has the step's blocks, groups and
// links.
void require_costs_of(const Schedule& schedule, const CostTable& costs);

}  // namespace cohort
