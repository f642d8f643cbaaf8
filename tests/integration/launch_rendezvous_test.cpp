// SPDX-License-Identifier: Apache-2.0
// The rendezvous of several agents, and those who were not invited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cohort/comm/endpoint.h"
#include "cohort/comm/guarded_store.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/unique_fd.h"
#include "program_run.h"

namespace cohort::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Args = std::vector<std::string>;

std::string free_endpoint() {
  return "127.0.0.1:" + std::to_string(Listener("127.0.0.1", 0).port());
}

int port_of(const std::string& rdzv) {
  return std::stoi(rdzv.substr(rdzv.rfind(':') + 1));
}

// An agent whose ranks say that they are ready, and end well at SIGUSR2.
Args agent_until_told(const std::string& rdzv, const Args& flags = {}) {
  Args args{launch_tool(), "-n", "1", "--nnodes", "2", "--rdzv", rdzv};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(),
              {"--", launch_tool(), "--act", "obey", std::to_string(SIGUSR2), "0"});
  return args;
}

// One of three agents, whose rank says which node it is on.
Args agent_of_three(const std::string& rdzv, const Args& flags) {
  Args args{launch_tool(), "--nnodes", "3", "--rdzv", rdzv};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(), {"--", "sh", "-c", "echo node $GROUP_RANK rank $RANK"});
  return args;
}

void expect_three_nodes(std::initializer_list<Program*> agents) {
  std::string out;
  for (Program* agent : agents) {
    EXPECT_EQ(agent->wait(), 0) << agent->err();
    out += agent->out();
  }
  for (const char* place : {"node 0 rank 0\n", "node 1 rank 1\n", "node 2 rank 2\n"}) {
    EXPECT_EQ(count(out, place), 1) << out;
  }
}

// What a stranger gets who speaks the store's language and knows our source.
struct Robbery {
  std::string world;
  bool injected = false;
};

Robbery rob(int port) {
  silence_c10d();
  Robbery loot;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(2);
  try {
    c10d::TCPStore store("127.0.0.1", options);
    for (const std::string& key : store.listKeys()) {
      if (key.find("agents") == std::string::npos) continue;
      const auto bytes = store.get(key.substr(key.find("cohort")));
      loot.world += key + "=" + std::string(bytes.begin(), bytes.end()) + "\n";
    }
    store.add("cohort/agents/event/0/turn", 1);
    const std::string event = "0 0 1 9 0\nelsewhere\ninjected";
    store.set("cohort/agents/event/0", {event.begin(), event.end()});
    loot.injected = true;
  } catch (const std::exception&) {
    // Nothing there that a stranger can use.
  }
  return loot;
}

constexpr std::chrono::milliseconds kAgentLimit{20'000};  // to be there
constexpr const char* kToken = "3iG1mPq8ZrYw0bKx7uNd";
constexpr const char* kOtherToken = "9aBcDeFgHiJkLmNoPqRs";

class RendezvousTest : public testing::Test {
 protected:
  // The flags for a token in a file of its own.
  Args token(const std::string& content, mode_t mode = 0600) {
    const std::string path = folder_ / ("token" + std::to_string(files_++));
    std::ofstream(path) << content << "\n";
    ::chmod(path.c_str(), mode);
    return {"--rdzv-token", path};
  }

  // Waits until the agent that came as `id` has left its card.
  void await_card(int id) const {
    ASSERT_EQ(await_listener("127.0.0.1", port_of(rdzv_), kAgentLimit), "");
    GuardedStore store({"127.0.0.1", port_of(rdzv_), kToken}, kAgentLimit);
    store.get("node/" + std::to_string(id), kAgentLimit);
  }

  static void expect_good_end(std::initializer_list<Program*> agents) {
    for (Program* agent : agents) agent->signal(SIGUSR2);
    for (Program* agent : agents) {
      EXPECT_EQ(agent->wait(), 0) << agent->err();
      EXPECT_THAT(agent->err(), Not(HasSubstr("injected")));
      EXPECT_THAT(agent->err() + agent->out(), Not(HasSubstr(kToken)));
    }
  }

  TempFolder folder_;
  int files_ = 0;
  const std::string rdzv_ = free_endpoint();
};

TEST_F(RendezvousTest, StrangerWithoutATokenReadsNothingAndEndsNoRun) {
  Program a(agent_until_told(rdzv_)), b(agent_until_told(rdzv_));
  ASSERT_TRUE(a.wait_for_output("ready")) << a.err();
  ASSERT_TRUE(b.wait_for_output("ready")) << b.err();
  EXPECT_EQ(rob(port_of(rdzv_)).world, "");
  expect_good_end({&a, &b});
}

TEST_F(RendezvousTest, StrangerAtAMeetingWithATokenIsNotEvenHeard) {
  const Args args = agent_until_told(rdzv_, token(kToken));
  Program a(args), b(args);
  ASSERT_TRUE(a.wait_for_output("ready")) << a.err();
  ASSERT_TRUE(b.wait_for_output("ready")) << b.err();
  const Robbery loot = rob(port_of(rdzv_));
  EXPECT_EQ(loot.world, "");
  EXPECT_FALSE(loot.injected);
  expect_good_end({&a, &b});
}

TEST_F(RendezvousTest, AnyNumberOfAgentsWithOneTokenMeet) {
  for (const std::string nodes : {"1", "3"}) {
    const std::string rdzv = free_endpoint();
    const Args flags = token(kToken);
    const Args args{launch_tool(), "-n",    "2",      "--nnodes", nodes,
                    "--rdzv",      rdzv,    flags[0], flags[1],   "--",
                    launch_tool(), "--act", "meet",   "5",        "1"};
    std::vector<std::unique_ptr<Program>> agents;
    for (int i = 0; i < std::stoi(nodes); ++i) {
      agents.push_back(std::make_unique<Program>(args));
    }
    std::string out;
    for (const auto& agent : agents) {
      EXPECT_EQ(agent->wait(), 0) << agent->err();
      out += agent->out();
    }
    EXPECT_EQ(count(out, "round 4\n"), 1);
  }
}

TEST_F(RendezvousTest, AnotherTokenIsRefusedOnBothSidesAndTheMeetingGoesOn) {
  Program host(agent_until_told(rdzv_, token(kToken)));
  await_card(0);
  Program wrong(agent_until_told(rdzv_, token(kOtherToken)));
  EXPECT_EQ(wrong.wait(), 2);
  ASSERT_TRUE(host.wait_until([&] { return !host.err().empty(); }));
  EXPECT_THAT(host.err(), HasSubstr("the agent at 127.0.0.1 has another rendezvous"));
  EXPECT_THAT(wrong.err(), HasSubstr("the agent at " + rdzv_ +
                                     " has another rendezvous token; legal: "));
  EXPECT_EQ(count(wrong.err(), "\n"), 1) << wrong.err();
  Program right(agent_until_told(rdzv_, token(kToken)));
  ASSERT_TRUE(host.wait_for_output("ready")) << host.err();
  ASSERT_TRUE(right.wait_for_output("ready")) << right.err();
  expect_good_end({&host, &right});
}

TEST_F(RendezvousTest, GarbageAndSilenceOnThePortDisturbNobody) {
  const Args args = agent_until_told(rdzv_, token(kToken));
  Program a(args);
  std::vector<UniqueFd> crowd;
  std::string reason;
  await_card(0);
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(
        connect_to("127.0.0.1", port_of(rdzv_), std::chrono::seconds(5), reason));
    const std::string words = i % 2 ? "" : std::string(300, static_cast<char>(i));
    ::send(crowd.back().get(), words.data(), words.size(), MSG_NOSIGNAL);
  }
  Program b(args);
  ASSERT_TRUE(a.wait_for_output("ready")) << a.err();
  ASSERT_TRUE(b.wait_for_output("ready")) << b.err();
  expect_good_end({&a, &b});
  EXPECT_EQ(a.err() + b.err(), "");
}

TEST_F(RendezvousTest, TheTokenMayBeInTheEnvironmentAndRanksDoNotGetIt) {
  const Args args{launch_tool(),
                  "-n",
                  "1",
                  "--nnodes",
                  "2",
                  "--rdzv",
                  rdzv_,
                  "--",
                  "sh",
                  "-c",
                  "env; tr '\\0' '\\n' < /proc/$PPID/cmdline"};
  const Args variables{std::string("COHORT_RDZV_TOKEN=") + kToken};
  Program a(args, variables), b(args, variables);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(a.out() + b.out(), HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(a.out() + b.out(), Not(HasSubstr(kToken)));
  EXPECT_THAT(a.out() + b.out(), Not(HasSubstr("COHORT_RDZV_TOKEN")));
}

TEST_F(RendezvousTest, ATokenThatIsNoSecretIsAUsageError) {
  for (const Args& flags :
       {token(kToken, 0644), token("short"), Args{"--rdzv-token", folder_ / "none"},
        Args{"--rdzv-token", folder_.path()}}) {
    Program run(agent_until_told(rdzv_, flags));
    EXPECT_EQ(run.wait(), 2) << flags[1];
    EXPECT_THAT(run.err(), HasSubstr(flags[1]));
    EXPECT_THAT(run.err(), HasSubstr("legal: "));
    EXPECT_EQ(count(run.err(), "\n"), 1) << run.err();
  }
}

TEST_F(RendezvousTest, WithoutATokenOnlyLoopbackIsAPlaceToMeet) {
  Program run(agent_until_told("192.0.2.1:29400"));  // nobody's, RFC 5737
  EXPECT_EQ(run.wait(), 2);
  EXPECT_THAT(run.err(), HasSubstr("legal: --rdzv-token FILE"));
  EXPECT_EQ(count(run.err(), "\n"), 1) << run.err();
}

TEST_F(RendezvousTest, AGuestThatDiesBeforeTheRunMayComeAgain) {
  const Args args = agent_of_three(rdzv_, token(kToken));
  Program host(args);
  await_card(0);
  {
    Program guest(args);
    await_card(1);
    guest.signal(SIGKILL);
    guest.wait();
  }
  Program again(args), last(args);
  expect_three_nodes({&host, &again, &last});
}

TEST_F(RendezvousTest, WhenTheHostDiesBeforeTheRunAnotherServes) {
  const Args args = agent_of_three(rdzv_, token(kToken));
  auto host = std::make_unique<Program>(args);
  await_card(0);
  Program guest(args);
  await_card(1);
  host->signal(SIGKILL);
  host->wait();
  Program again(args), last(args);
  expect_three_nodes({&guest, &again, &last});
}

}  // namespace
}  // namespace cohort::test
