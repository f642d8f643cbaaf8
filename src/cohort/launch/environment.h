// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort::process {

// What all ranks of a run agree on, as seen from one node.
struct NodeWorld {
  int node_rank = 0;
  int num_nodes = 1;
  int first_rank = 0;  // the global rank of this node's local rank 0
  int local_size = 1;
  int world_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string token;   // secret of the run
  std::string run_id;  // its name
};

struct Attempt {
  int generation = 0;
  int max_restarts = 0;
};

// The variables of one rank: torchrun's, under torchrun's names, and ours. A script
// written for torchrun runs unchanged.
std::vector<std::string> rank_variables(const NodeWorld& world, int local_rank,
                                        const Attempt& attempt,
                                        const std::string& error_file);

// OMP_NUM_THREADS of a rank: `wanted` if positive, else what the user has set (0: it
// is left alone), else an equal share of the cores, at least 1.
int threads_of_rank(int wanted, int num_cores, int ranks);

}  // namespace cohort::process
