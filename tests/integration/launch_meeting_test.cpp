// SPDX-License-Identifier: Apache-2.0
// The meeting of several agents, and those who were not invited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cohort/comm/endpoint.h"
#include "process.h"

namespace cohort::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Args = std::vector<std::string>;

std::string meeting_place() {
  return "127.0.0.1:" + std::to_string(Listener("127.0.0.1", 0).port());
}

int port_of(const std::string& rdzv) {
  return std::stoi(rdzv.substr(rdzv.rfind(':') + 1));
}

// An agent whose ranks say that they are ready, and end well at SIGUSR2.
Args agent_until_told(const std::string& rdzv, Args flags = {},
                      const std::string& nodes = "2") {
  Args args{launch_tool(), "-n", "1", "--nnodes", nodes, "--rdzv", rdzv};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(),
              {"--", launch_tool(), "--act", "obey", std::to_string(SIGUSR2), "0"});
  return args;
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

TEST(Stranger, ReadsNothingOfTheMeetingAndEndsNoRun) {
  const std::string rdzv = meeting_place();
  Program a(agent_until_told(rdzv)), b(agent_until_told(rdzv));
  ASSERT_TRUE(a.wait_for_output("ready")) << a.err();
  ASSERT_TRUE(b.wait_for_output("ready")) << b.err();
  const Robbery loot = rob(port_of(rdzv));
  EXPECT_EQ(loot.world, "");
  a.signal(SIGUSR2);
  b.signal(SIGUSR2);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(a.err() + b.err(), Not(HasSubstr("injected")));
}

}  // namespace
}  // namespace cohort::test
