// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/communicator.h"
#include "cohort/comm/store.h"
#include "cohort/comm/world.h"

namespace cohort {

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
  // Collective. The launcher's variables say who this rank is (world_from_env);
  // without any it is a world of one, which needs no peer and no network. Throws what
  // world_from_env(), join() and connect() throw.
  static Session from_env(const ConnectOptions& options = {});

  explicit Session(const World& world, const ConnectOptions& options = {});
  Session(Session&&) = default;

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
