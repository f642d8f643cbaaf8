// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cohort/comm/node/memory.h"
#include "cohort/comm/node/pause.h"

namespace cohort::node {

class Group;

// What a group is made of.
struct GroupSpec {
  std::shared_ptr<Memory> memory;
  std::byte* control = nullptr;  // the group's control block, as seen here
  bool owns_control = false;     // it lies in this rank's memory
  int rank = 0;
  int generation = 0;
  Nanoseconds timeout{};
  std::vector<int> world_ranks;  // of the members, by their rank here
  std::shared_ptr<Group> world;  // null: this is the world
};

}  // namespace cohort::node
