// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/step/schedule.h"

namespace cohort {

// The groups of a rank that sum and share state. Without hybrid sharding `shard` is
// `dp` and there is no `replicate`; without a pipeline `dp` is the world.
struct RankGroups {
  Communicator* world = nullptr;
  Communicator* dp = nullptr;
  Communicator* shard = nullptr;
  Communicator* replicate = nullptr;
};

// All that a rank communicates through: a communicator for each group of a schedule
// that is not the world, and for each link along its pipeline.
class RankChannels {
 public:
  // Collective over `world`, which is borrowed.
  RankChannels(const Schedule& schedule, Communicator& world);

  const RankGroups& groups() const { return groups_; }
  // The pair of ranks at the ends of that lane's link, and who the other one is.
  struct Link {
    Communicator* comm;
    int peer;
  };
  Link link(int lane) const;

 private:
  Communicator* group(AxisSet axes);

  const Mesh& mesh_;
  Communicator& world_;
  std::vector<std::unique_ptr<Communicator>> parts_;
  std::map<int, std::unique_ptr<Communicator>> links_;  // by lane
  RankGroups groups_;
};

}  // namespace cohort
