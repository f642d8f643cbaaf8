// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cohort/comm/shared_memory/pause.h"
#include "cohort/comm/shared_memory/shared_memory.h"
#include "cohort/comm/shared_memory/siblings.h"
#include "cohort/core/clock.h"
#include "cohort/core/fault_point.h"

namespace cohort::shared_memory {

class SharedGroup;

// What a group is made of.
struct GroupSpec {
  std::shared_ptr<SharedMemory> memory;
  std::byte* control = nullptr;  // the group's control block, as seen here
  bool owns_control = false;     // it lies in this rank's memory
  int rank = 0;
  int generation = 0;
  Nanoseconds timeout{};
  std::vector<int> world_ranks;        // the members' ranks in the world, by rank here
  std::shared_ptr<SharedGroup> world;  // null: this is the world
  std::shared_ptr<Siblings> siblings = std::make_shared<Siblings>();
  Clock* clock = nullptr;       // for deadlines and stamps; null: the machine's
  FaultPlan* faults = nullptr;  // null: nothing is tried

  Nanoseconds time() const { return clock ? clock->now().time_since_epoch() : now(); }
  Nanoseconds coarse_time() const {
    return clock ? clock->now().time_since_epoch() : coarse_now();
  }

  // Whether this rank's message gets lost: it counts as sent, but peers do not see it.
  bool loses_message(uint64_t number) const {
    return faults &&
           FaultPlan::Ask::kDrop == faults->reach("comm.message", world_ranks[rank],
                                                  static_cast<int64_t>(number));
  }
};

}  // namespace cohort::shared_memory
