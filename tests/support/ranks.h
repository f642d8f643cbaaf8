// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "cohort/comm/local/local.h"
#include "cohort/comm/store.h"
#include "cohort/communicator.h"

namespace cohort::test {

enum class Kind { kThreads, kProcesses };

// What a test runs on: the parameter of every conformance test.
struct World {
  std::string backend;
  int size = 1;
  Kind kind = Kind::kThreads;
  std::chrono::milliseconds timeout{20'000};
  bool gpu = false;      // the tensors of the test are copied to the GPU for each call
  bool windows = false;  // shm: its ranks share the first GPU, and take tensors of it
  bool relay = false;    // its ranks take tensors of the first GPU, over the host
};

std::ostream& operator<<(std::ostream& out, const World& world);
std::string world_name(const testing::TestParamInfo<World>& info);

// Every backend of the table in ranks.cpp, in every way it can run. With
// COHORT_TEST_GPU=1 in the environment: nccl, shm with windows, and shm and gloo with a
// relay, up to 4 ranks.
std::vector<World> every_world(const std::vector<int>& sizes);
// Those whose backend compares the calls of its ranks and names who is missing.
std::vector<World> every_checked_world(const std::vector<int>& sizes);
std::vector<World> only(Kind kind, std::vector<World> worlds);
std::vector<World> only(std::string_view backend, std::vector<World> worlds);
std::vector<World> but(std::string_view backend, std::vector<World> worlds);

using RankBody = std::function<void(Communicator& comm)>;
using RankStoreBody = std::function<void(Communicator& comm, Store& store)>;

// Runs `body` on every rank of a new world and reports what failed there. The test
// program itself never runs a kernel, so that it may fork: ranks are always in
// children of it, which end with it.
void run_ranks(const World& world, const RankBody& body);
// With a store for what ranks say outside the communicator. Ranks in `may_die` are
// expected to be killed by a signal.
void run_ranks(const World& world, const RankStoreBody& body,
               const std::set<int>& may_die = {});

// Runs `body` in a child of the test program; failures are reported there.
void run_in_child(const std::function<void()>& body);
// Runs `body` in so many children at once, each with its number.
void run_in_children(size_t count, const std::function<void(size_t child)>& body);

// Within such a child: runs `body` on every rank of a new local world. Communicators
// live until all ranks have returned.
void run_local_ranks(int size, int generation, const RankBody& body);
void run_local_ranks(int size, const LocalOptions& options, const RankBody& body);

// Connects one more communicator of the same world, of another generation.
std::unique_ptr<Communicator> connect_again(const World& world, int rank,
                                            int generation, Store& store);

// Runs `function` and returns the message of the CommError it must throw.
std::string comm_error(const std::function<void()>& function);

}  // namespace cohort::test
