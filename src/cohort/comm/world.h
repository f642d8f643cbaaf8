// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/comm/communicator.h"
#include "cohort/comm/store.h"

namespace cohort {

// Who this process is in a run, and where the run's store is.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  int generation = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;            // 0: no store needed, a world of one
  bool hosts_store = false;       // rank 0 of a launcher that runs no store of its own
  std::string token;              // the run's secret prefix of all store keys
  std::string launcher = "none";  // cohort, torchrun, openmpi, slurm, ... or none
};

// Reads the launcher's variables (torchrun's, ours, Open MPI's, MPICH's, Slurm's).
// Without any: a world of one. Throws ConfigError for variables that contradict
// each other (a rank outside its world, half a set).
World world_from_env();

struct ConnectOptions {
  std::string backend = "auto";  // auto, local, shm, gloo, mpi, nccl, hybrid
  // What names the GPU that this rank computes on, among those of all nodes; empty: it
  // computes on the host. Given by all ranks or by none.
  std::string gpu = {};
  // How long a rank may show no sign of progress before the others give it up.
  std::chrono::milliseconds timeout{30'000};
  // How long to wait for all ranks to appear at the start.
  std::chrono::milliseconds join_timeout{60'000};
  // nccl: ranks may share a GPU. For tests: slower than without a GPU.
  bool nccl_share_gpu = false;
};

// Connects to the world's store (and hosts it where the launcher has none).
// Refuses, with ConfigError on every rank, a world whose ranks disagree about its
// size or run different versions of the program; names the ranks that never came.
std::unique_ptr<Store> join(const World& world, const ConnectOptions& options);

// Collective: builds the communicator of all ranks. `auto` is the same backend on every
// rank: nccl where each has a GPU of its own and NCCL, else what serves the host.
// ConfigError for a backend that is unknown (with the nearest one), not built, or
// cannot serve this world.
std::unique_ptr<Communicator> connect(const World& world, Store& store,
                                      const ConnectOptions& options);

}  // namespace cohort
