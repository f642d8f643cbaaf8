// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/agent_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "cohort/core/error.h"
#include "cohort/core/message.h"

namespace cohort {
namespace {

TEST(AgentLink, CarriesKindGenerationTextAndDescriptor) {
  auto [here, there] = AgentLink::make_pair();
  EXPECT_FALSE(there.receive());
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(here.send(LinkMessage::kHold, 3, "snapshot", memory.get()));
  const auto message = there.receive();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, LinkMessage::kHold);
  EXPECT_EQ(message->generation, 3);
  EXPECT_EQ(message->text, "snapshot");
  EXPECT_TRUE(message->fd);
  EXPECT_TRUE(there.open());
}

TEST(AgentLink, EndsWhenTheOtherSideIsGone) {
  auto [here, there] = AgentLink::make_pair();
  ASSERT_TRUE(here.send(LinkMessage::kWaiting, 0));
  { const AgentLink gone = std::move(here); }
  EXPECT_TRUE(there.receive());  // what was said before
  EXPECT_FALSE(there.receive());
  EXPECT_FALSE(there.open());
  EXPECT_FALSE(there.send(LinkMessage::kWaiting, 0));
}

TEST(AgentLink, EndsAtWhatIsNoMessage) {
  struct {
    uint32_t version, kind;
    int32_t generation;
    uint32_t text_bytes;
  } const wrong[] = {{1, LinkMessage::kWorld, 0, 0},
                     {0xC0480001, 0, 0, 0},
                     {0xC0480001, 99, 0, 0},
                     {0xC0480001, LinkMessage::kWorld, 0, 5}};
  for (const auto& head : wrong) {
    auto [here, there] = AgentLink::make_pair();
    ASSERT_TRUE(send_message(here.fd(), &head, sizeof head));
    EXPECT_FALSE(there.receive());
    EXPECT_FALSE(there.open()) << head.kind;
  }
}

TEST(AgentLink, DoesNotWaitForAReaderThatRests) {
  auto [here, there] = AgentLink::make_pair();
  const std::string text(100'000, 'x');
  int sent = 0;
  while (sent < 1000 && here.send(LinkMessage::kLost, 0, text)) ++sent;
  EXPECT_LT(sent, 1000);
}

TEST(AgentLink, WorldsSurviveTheirEncoding) {
  World world;
  world.rank = 2;
  world.size = 5;
  world.local_rank = 1;
  world.local_size = 3;
  world.node_rank = 1;
  world.num_nodes = 2;
  world.generation = 7;
  world.master_addr = "10.0.0.1";
  world.master_port = 29'500;
  world.token = "secret";
  world.launcher = "cohort";
  const World same = decode_world(encode(world));
  EXPECT_EQ(encode(same), encode(world));
  EXPECT_EQ(same.size, 5);
  EXPECT_EQ(same.token, "secret");
  EXPECT_EQ(same.launcher, "cohort");
  EXPECT_FALSE(same.hosts_store);
}

TEST(AgentLink, RefusesWhatIsNoWorld) {
  World world;
  world.rank = 3;  // in a world of one rank
  for (const std::string& wrong :
       {std::string("words"), std::string(), encode(world)}) {
    EXPECT_THROW(decode_world(wrong), CommError) << wrong;
  }
}

}  // namespace
}  // namespace cohort
