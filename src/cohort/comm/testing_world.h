// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/comm/world.h"

namespace cohort::test {

// For tests: a rank of a world on this machine, whose store is at that port.
inline World rank_of(int rank, int size, int port) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.master_port = port;
  world.token = "token";
  return world;
}

}  // namespace cohort::test
