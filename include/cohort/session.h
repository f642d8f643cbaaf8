// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/communicator.h"

namespace [[gnu::visibility("default")]] cohort {

class Store;

// Which rank this process is in a run, and where the run's store is.
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
// each other (a rank outside its world, half a set). Talks to nobody, and may be called
// at any time and from any thread, if no other changes the environment meanwhile.
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

// A rank's membership in its run: its World, and the communicator of all ranks. All
// that a program of its own needs to take part:
//
//   auto session = cohort::Session::from_env();
//   session.comm().all_reduce(tensor, cohort::ReduceOp::kSum).wait();
//
// What is made with comm() (a DataParallel, groups by split()) must go first; tensors
// from allocate() may stay. Thread safety: as Communicator.
class Session {
 public:
  // Collective. The launcher's variables say which rank this is (world_from_env);
  // without any it is a world of one, which needs no peer and no network. ConfigError
  // for variables or a backend that cannot be, for ranks that disagree about their
  // world or run another build, and under `cohort launch --elastic` (elastic.h);
  // CommError that names the ranks that never came.
  static Session from_env(const ConnectOptions& options = {});

  explicit Session(const World& world, const ConnectOptions& options = {});
  Session(Session&&) noexcept;
  ~Session();

  const World& world() const { return world_; }
  Communicator& comm() { return *comm_; }
  int rank() const { return world_.rank; }
  int size() const { return world_.size; }

 private:
  World world_;
  std::unique_ptr<Store> store_;  // outlives comm_, which may look things up in it
  std::unique_ptr<Communicator> comm_;
};

}  // namespace cohort
