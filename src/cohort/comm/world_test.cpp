// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/comm/world_env.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

World world_of(const Variables& variables) {
  return world_from([&](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal_of(const Variables& variables) {
  return test::message_of<ConfigError>([&] { world_of(variables); });
}

const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_RANK", "1"},
                          {"MASTER_ADDR", "head"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RUN_ID", "run7"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(World, WithoutVariablesIsAWorldOfOne) {
  const World world = world_of({});
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.size, 1);
  EXPECT_EQ(world.master_port, 0);
  EXPECT_FALSE(world.hosts_store);
  EXPECT_EQ(world.launcher, "none");
}

TEST(World, ReadsWhatTorchrunExports) {
  const World world = world_of(kTorchrun);
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.num_nodes, 2);
  EXPECT_EQ(world.master_addr, "head");
  EXPECT_EQ(world.master_port, 29400);
  EXPECT_EQ(world.generation, 2);
  EXPECT_EQ(world.launcher, "torchrun");
}

TEST(World, RankZeroHostsTheStoreUnlessAnAgentDoes) {
  EXPECT_FALSE(world_of(with(kTorchrun, {{"RANK", "0"}})).hosts_store);
  const Variables no_agent{{"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  EXPECT_TRUE(world_of(with(with(kTorchrun, no_agent), {{"RANK", "0"}})).hosts_store);
  EXPECT_FALSE(world_of(with(kTorchrun, no_agent)).hosts_store);
}

TEST(World, OneRankMeetsNobodyAndNeedsNoPort) {
  const World world = world_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(world.size, 1);
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("MASTER_PORT is not"));
}

TEST(World, OurTokenAndGenerationComeFirst) {
  const World world = world_of(
      with(kTorchrun, {{"COHORT_RUN_TOKEN", "secret"}, {"COHORT_GENERATION", "5"}}));
  EXPECT_EQ(world.launcher, "cohort");
  EXPECT_EQ(world.token, "secret");
  EXPECT_EQ(world.generation, 5);
}

TEST(World, RanksOfARunDeriveOneTokenAndOtherRunsAnother) {
  const World rank3 = world_of(kTorchrun);
  const World rank0 = world_of(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_EQ(rank3.token, rank0.token);
  EXPECT_NE(rank3.token, world_of(with(kTorchrun, {{"MASTER_PORT", "29401"}})).token);
  EXPECT_NE(rank3.token,
            world_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "run8"}})).token);
}

TEST(World, ARunAtTheLoopbackAddressIsOnOneNode) {
  const World world = world_of({{"RANK", "1"},
                                {"WORLD_SIZE", "3"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", "29500"}});
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 3);
  EXPECT_EQ(world.num_nodes, 1);
}

TEST(World, ReadsOpenMpiOnOneNode) {
  const Variables one{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                      {"PMIX_NAMESPACE", "prterun-1"}};
  const World world = world_of(one);
  EXPECT_EQ(world.launcher, "openmpi");
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.local_size, 3);
  EXPECT_EQ(world.master_addr, "127.0.0.1");
  EXPECT_GT(world.master_port, 1024);
  const World zero = world_of(
      with(one, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  EXPECT_EQ(zero.master_port, world.master_port);
  EXPECT_EQ(zero.token, world.token);
  EXPECT_TRUE(zero.hosts_store);
}

TEST(World, MpiOverSeveralNodesNeedsTheMastersAddress) {
  const Variables two{{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "prterun-1"}};
  EXPECT_THAT(refusal_of(two), HasSubstr("MASTER_ADDR is not set"));
  const World world = world_of(with(two, {{"MASTER_ADDR", "head"}}));
  EXPECT_EQ(world.master_addr, "head");
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_GT(world.master_port, 1024);
}

TEST(World, ReadsMpichMvapichAndPals) {
  const World mpich = world_of({{"PMI_RANK", "1"},
                                {"PMI_SIZE", "2"},
                                {"MPI_LOCALRANKID", "1"},
                                {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(mpich.launcher, "mpich");
  EXPECT_EQ(mpich.local_rank, 1);
  const World mvapich = world_of({{"MV2_COMM_WORLD_RANK", "0"},
                                  {"MV2_COMM_WORLD_SIZE", "1"},
                                  {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                                  {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(mvapich.launcher, "mvapich2");
  EXPECT_THAT(refusal_of({{"PALS_RANKID", "1"}}), HasSubstr("PALS_SIZE is not"));
}

const Variables kSlurm{{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "5"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_JOB_ID", "1234567"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                       {"SLURM_JOB_NODELIST", "gpu[08-09,12]"},
                       {"SLURM_RESTART_COUNT", "1"}};

TEST(World, ReadsASlurmStep) {
  const World world = world_of(kSlurm);
  EXPECT_EQ(world.launcher, "slurm");
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 5);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.num_nodes, 3);
  EXPECT_EQ(world.master_addr, "gpu08");
  EXPECT_EQ(world.master_port, 15'000 + 4'567);
  EXPECT_EQ(world.generation, 1);
  EXPECT_FALSE(world.hosts_store);
}

TEST(World, ABatchScriptThatIsNoStepIsAWorldOfOne) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  EXPECT_EQ(world_of(script).size, 1);
}

TEST(World, RefusesContradictionsWithWhatWasGivenAndWhatIsLegal) {
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "4"}})),
              HasSubstr("RANK is 4 but WORLD_SIZE is 4; legal ranks are 0 to 3"));
  EXPECT_THAT(refusal_of({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "two"}})),
              HasSubstr("RANK is 'two'; legal is a whole number"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("'-1'"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("from 1"));
  EXPECT_THAT(
      refusal_of(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
      HasSubstr("MASTER_PORT is '70000'; legal is a whole number from 1 to 65535"));
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("MASTER_PORT is not"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
              HasSubstr("local rank 2 of 2"));
}

TEST(World, AnEmptyVariableCountsAsUnset) {
  EXPECT_EQ(world_of({{"RANK", ""}, {"WORLD_SIZE", ""}}).size, 1);
}

TEST(SlurmNodeLists, AreExpanded) {
  EXPECT_THAT(slurm_hosts("a[5-7,12],b,c01"),
              ElementsAre("a5", "a6", "a7", "a12", "b", "c01"));
  EXPECT_THAT(slurm_hosts("n[008-010]"), ElementsAre("n008", "n009", "n010"));
  EXPECT_THAT(slurm_hosts("r[1-2]n[3,4].x"),
              ElementsAre("r1n3.x", "r1n4.x", "r2n3.x", "r2n4.x"));
  EXPECT_THAT(slurm_tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* bad : {"a[1-", "a]1[", "a[x]", "a[3-1]", "", "a,,b", "a[[1]]"}) {
    EXPECT_THROW(slurm_hosts(bad), ConfigError) << bad;
  }
  for (const char* bad : {"x", "2(x", "2(x3", ""}) {
    EXPECT_THROW(slurm_tasks(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace cohort
