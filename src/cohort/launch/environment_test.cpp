// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>

#include "cohort/core/error.h"
#include "cohort/launch/cores.h"
#include "cohort/launch/process_tree.h"
#include "cohort/launch/rendezvous.h"
#include "cohort/launch/wire.h"

namespace cohort::process {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(RankVariables, AreTorchruns) {
  const NodeWorld world{1, 2, 3, 2, 5, "host", 1234, "secret", "name"};
  const auto variables = rank_variables(world, 1, {2, 7}, "/tmp/e");
  EXPECT_THAT(variables,
              testing::UnorderedElementsAre(
                  "LOCAL_RANK=1", "RANK=4", "GROUP_RANK=1", "ROLE_RANK=4",
                  "ROLE_NAME=default", "LOCAL_WORLD_SIZE=2", "WORLD_SIZE=5",
                  "GROUP_WORLD_SIZE=2", "ROLE_WORLD_SIZE=5", "MASTER_ADDR=host",
                  "MASTER_PORT=1234", "TORCHELASTIC_RESTART_COUNT=2",
                  "TORCHELASTIC_MAX_RESTARTS=7", "TORCHELASTIC_RUN_ID=name",
                  "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_ERROR_FILE=/tmp/e",
                  "COHORT_RUN_TOKEN=secret", "COHORT_GENERATION=2"));
}

TEST(Threads, AreAShareOfTheCoresUnlessSomeoneSaidOtherwise) {
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads_of_rank(0, 8, 3), 2);
  EXPECT_EQ(threads_of_rank(0, 2, 5), 1);
  EXPECT_EQ(threads_of_rank(6, 2, 5), 6);
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(threads_of_rank(0, 8, 2), 0);
  EXPECT_EQ(threads_of_rank(4, 8, 2), 4);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(Cores, AreSharedWithoutOverlap) {
  EXPECT_THAT(share_cores({0, 1, 2, 3, 4}, 1), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(share_cores({0, 2, 4, 6, 8}, 3),
              ElementsAre(ElementsAre(0), ElementsAre(2, 4), ElementsAre(6, 8)));
  EXPECT_THAT(share_cores({0, 1}, 3), IsEmpty());
  EXPECT_THAT(allowed_cores(), testing::Not(IsEmpty()));
}

TEST(Wire, SpawnTextComesBack) {
  const SpawnText spawn{{3, 12}, {"A=1", "EMPTY=", "B=x y\nz"}};
  const auto back = try_read_record<SpawnText>(to_record(spawn));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->cores, spawn.cores);
  EXPECT_EQ(back->variables, spawn.variables);
}

TEST(Wire, EventsComeBackOnOneLine) {
  AgentEvent event;
  event.failure = {3, "node7", 4242, 139, 11, "two\nlines"};
  const AgentEvent back = decode_agent_event(encode(event));
  EXPECT_EQ(back.kind, AgentEvent::kFault);
  EXPECT_EQ(back.failure.rank, 3);
  EXPECT_EQ(back.failure.host, "node7");
  EXPECT_EQ(back.failure.pid, 4242);
  EXPECT_EQ(back.failure.exit_code, 139);
  EXPECT_EQ(back.failure.signal, 11);
  EXPECT_EQ(back.failure.message, "two lines");
}

TEST(Endpoints, AreHostAndPort) {
  EXPECT_EQ(parse_endpoint("127.0.0.1:29500").host, "127.0.0.1");
  EXPECT_EQ(parse_endpoint("127.0.0.1:29500").port, 29500);
  EXPECT_EQ(parse_endpoint("[::1]:7").host, "::1");
  for (const char* bad : {"", "host", ":1", "h:", "h:x", "h:0", "h:70000", "h:-1"}) {
    EXPECT_THROW(parse_endpoint(bad), ConfigError) << bad;
  }
}

TEST(SignalNames, AreThoseOfTheManual) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(63), "signal 63");
}

TEST(RandomHex, DoesNotRepeat) {
  EXPECT_EQ(random_hex(16).size(), 32u);
  EXPECT_NE(random_hex(16), random_hex(16));
}

TEST(Children, AreEndedButForThoseSpared) {
  const pid_t spared = ::fork();
  if (spared == 0) {
    ::pause();
    ::_exit(0);
  }
  const pid_t ended = ::fork();
  if (ended == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_THAT(children(), Contains(spared));
  EXPECT_THAT(children(), Contains(ended));
  EXPECT_TRUE(end_children({spared}, std::chrono::seconds(5)));
  EXPECT_THAT(children(), Contains(spared));
  EXPECT_THAT(children(), testing::Not(Contains(ended)));
  EXPECT_TRUE(end_children({}, std::chrono::seconds(5)));
  EXPECT_THAT(children(), testing::Not(Contains(spared)));
}

}  // namespace
}  // namespace cohort::process
