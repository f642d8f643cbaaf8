// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local_store.h"
#include "cohort/comm/nccl/nccl.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using testing::HasSubstr;

World world_of(int size, int local_size) {
  World world;
  world.size = size;
  world.local_size = local_size;
  world.num_nodes = size / local_size;
  return world;
}

std::string refusal_of(const std::string& backend, const World& world = {}) {
  LocalStore store;
  try {
    connect(world, store, {.backend = backend});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Backends, AutoPicksByWhereTheRanksAre) {
  EXPECT_EQ(find_backend("auto", world_of(1, 1)).name, "local");
  EXPECT_EQ(find_backend("auto", world_of(3, 3)).name, "shm");
  EXPECT_EQ(find_backend("auto", world_of(4, 2)).name, "gloo");
  EXPECT_EQ(find_backend("gloo", world_of(3, 3)).name, "gloo");
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
