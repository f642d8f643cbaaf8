// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/local_store.h"
#include "cohort/comm/nccl/nccl.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

World world_of(int size, int local_size) {
  World world;
  world.size = size;
  world.local_size = local_size;
  world.num_nodes = size / local_size;
  return world;
}

std::string refusal_of(const std::string& backend, const World& world = {}) {
  LocalStore store;
  return test::message_of<ConfigError>(
      [&] { connect(world, store, {.backend = backend}); });
}

TEST(Backends, AutoPicksByWhereTheRanksAre) {
  EXPECT_EQ(find_backend("auto", world_of(1, 1)).name, "local");
  EXPECT_EQ(find_backend("auto", world_of(3, 3)).name, "shm");
  EXPECT_EQ(find_backend("auto", world_of(4, 2)).name, "gloo");
  EXPECT_EQ(find_backend("gloo", world_of(3, 3)).name, "gloo");
}

TEST(Backends, AutoIsNcclWhereEachRankHasAGpuOfItsOwn) {
  const std::vector<std::string> own = {"a", "b", "c", "d"};
  EXPECT_EQ(choose_backend(world_of(4, 4), own), "nccl");
  EXPECT_EQ(choose_backend(world_of(4, 2), own), "nccl");
  EXPECT_EQ(choose_backend(world_of(1, 1), std::span(own).first(1)), "local");
}

TEST(Backends, AutoIsOfTheHostWhereRanksShareAGpuOrOneHasNone) {
  const std::vector<std::string> shared = {"a", "b", "c", "a"};
  const std::vector<std::string> missing = {"a", "b", "", "d"};
  const std::vector<std::string> none(4);
  const std::vector<std::string> few = {"a", "b"};
  for (const auto& gpus : {shared, missing, none, few}) {
    EXPECT_EQ(choose_backend(world_of(4, 4), gpus), "shm");
    EXPECT_EQ(choose_backend(world_of(4, 2), gpus), "gloo");
  }
}

TEST(Backends, TheFirstTwoRanksOnOneGpuAreNamed) {
  const std::vector<std::string> shared = {"a", "b", "c", "b"};
  EXPECT_EQ(shared_gpu(shared), "ranks 1 and 3 are on one GPU");
  EXPECT_EQ(shared_gpu(std::vector<std::string>{"", "", "a"}), "");
}

TEST(Backends, RanksLearnTheSameListOfGpus) {
  LocalStore store;
  const std::vector<std::string> given = {"a", "", "c"};
  std::vector<std::vector<std::string>> learnt(3);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      World world = world_of(3, 3);
      world.rank = rank;
      // A world may connect again; the answer stays.
      for (int i = 0; i < 2; ++i)
        learnt[rank] = told_by_ranks(world, store, "gpus", given[rank], 10s);
    });
  ranks.clear();
  for (const auto& list : learnt) EXPECT_EQ(list, given);
}

TEST(Backends, ARankWithoutNcclIsToldSoBeforeOthersAreAsked) {
  if (nccl_fault().empty()) return;
  LocalStore store;
  const ConnectOptions options{.backend = "nccl", .gpu = "a"};
  EXPECT_THROW(connect(world_of(2, 2), store, options), ConfigError);
}

TEST(Backends, AWorldOfOneConnectsByEveryAvailableBackend) {
  for (const Backend& backend : backends()) {
    if (!backend.is_available()) continue;
    LocalStore store;
    auto comm = connect({}, store, {.backend = std::string(backend.name)});
    EXPECT_EQ(comm->backend(), backend.name);
    EXPECT_EQ(comm->size(), 1);
    comm->barrier().wait();
  }
}

TEST(Backends, OnesThatComeLaterSayWhatIsThereToday) {
  for (const char* name : {"mpi", "hybrid"}) {
    EXPECT_EQ(refusal_of(name),
              text("[comm] backend '", name,
                   "' comes with a later release; available: ", available_backends()));
  }
}

TEST(Backends, NcclSaysWhatItLacks) {
  if (!nccl_fault().empty()) {
    EXPECT_EQ(refusal_of("nccl"), text("[comm] backend 'nccl' ", nccl_fault(),
                                       "; available: auto, local, shm, gloo"));
  }
}

TEST(Backends, BackendsOfTheHostAllocateThereAlone) {
  for (const std::string name : {"local", "shm", "gloo"}) {
    LocalStore store;
    const auto comm = connect({}, store, {.backend = name});
    EXPECT_FALSE(comm->takes_cuda());
    EXPECT_TRUE(comm->allocate({2}, at::kFloat).is_cpu());
    try {
      comm->allocate({2}, at::kFloat, at::Device(at::kCUDA, 0));
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()),
                text("[comm.", name, "] allocate: device cuda:0; legal: cpu (rank 0)"));
    }
  }
}

TEST(Backends, AnUnknownOneGetsTheNearestName) {
  EXPECT_THAT(refusal_of("glo"), HasSubstr("unknown backend 'glo', nearest is 'gloo'"));
  EXPECT_THAT(refusal_of("MPI2"), HasSubstr("nearest is 'mpi'"));
  EXPECT_THAT(refusal_of(""), HasSubstr("available: auto, local, shm, gloo"));
}

TEST(Backends, LocalServesOneProcessOnly) {
  EXPECT_THAT(refusal_of("local", world_of(2, 2)), HasSubstr("this world has 2"));
}

}  // namespace
}  // namespace cohort
