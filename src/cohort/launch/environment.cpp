// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/environment.h"

#include <algorithm>
#include <cstdlib>

#include "cohort/core/error.h"

namespace cohort::process {

std::vector<std::string> rank_variables(const NodeWorld& world, int local_rank,
                                        const Attempt& attempt,
                                        const std::string& error_file) {
  const int rank = world.first_rank + local_rank;
  return {
      text("LOCAL_RANK=", local_rank),
      text("RANK=", rank),
      text("GROUP_RANK=", world.node_rank),
      text("ROLE_RANK=", rank),
      "ROLE_NAME=default",
      text("LOCAL_WORLD_SIZE=", world.local_size),
      text("WORLD_SIZE=", world.world_size),
      text("GROUP_WORLD_SIZE=", world.num_nodes),
      text("ROLE_WORLD_SIZE=", world.world_size),
      "MASTER_ADDR=" + world.master_addr,
      text("MASTER_PORT=", world.master_port),
      text("TORCHELASTIC_RESTART_COUNT=", attempt.generation),
      text("TORCHELASTIC_MAX_RESTARTS=", attempt.max_restarts),
      "TORCHELASTIC_RUN_ID=" + world.run_id,
      "TORCHELASTIC_USE_AGENT_STORE=True",
      "TORCHELASTIC_ERROR_FILE=" + error_file,
      "COHORT_RUN_TOKEN=" + world.token,
      text("COHORT_GENERATION=", attempt.generation),
  };
}

int threads_of_rank(int wanted, int num_cores, int ranks) {
  if (wanted > 0) return wanted;
  const char* set = std::getenv("OMP_NUM_THREADS");
  if (set && *set) return 0;
  return std::max(1, num_cores / std::max(1, ranks));
}

}  // namespace cohort::process
