// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rendezvous_notes.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

TEST(MeetingNotes, ComeBack) {
  const auto node = decode_node(encode(NodeNote{3, "1:5", 2, "host"}));
  EXPECT_EQ(node.ranks, 3);
  EXPECT_EQ(node.nodes, "1:5");
  EXPECT_EQ(node.max_restarts, 2);
  EXPECT_EQ(node.host, "host");
  const auto world =
      decode_world(encode(WorldNote{"t", "r", 99, {{0, 1, "a"}, {5, 3, "b"}}}));
  ASSERT_EQ(world.nodes.size(), 2u);
  EXPECT_EQ(world.port, 99);
  EXPECT_EQ(world.nodes[1].id, 5);
  EXPECT_EQ(world.nodes[1].ranks, 3);
  EXPECT_EQ(world.nodes[1].host, "b");
  AgentEvent event;
  event.kind = AgentEvent::kStop;
  event.failure = {.rank = 3, .host = "h", .signal = 15, .message = "two\nlines"};
  const auto back = decode_agent_event(encode(event));
  EXPECT_EQ(back.kind, AgentEvent::kStop);
  EXPECT_EQ(back.failure.signal, 15);
  EXPECT_EQ(back.failure.message, "two lines");
  EXPECT_EQ(decode_port("29500"), 29500);
}

// A port that is open to others is written to by others.
TEST(MeetingNotes, OfStrangersAreRefused) {
  const NodeNote nodes[] = {
      {0, "1:1", 0, "h"}, {2'000'000, "1:1", 0, "h"}, {1, "1:1", -1, "h"}};
  for (const auto& note : nodes) EXPECT_THROW(decode_node(encode(note)), CommError);
  const WorldNote worlds[] = {
      {"t", "r", 1, {}},
      {"t", "r", 1, {{0, 0, "h"}}},
      {"t", "r", 0, {{0, 1, "h"}}},
      {"t", "r", 65'536, {{0, 1, "h"}}},
      {"t", "r", 1, {{0, 1'048'577, "h"}}},
      {"t", "r", 1, {{0, -1, "h"}, {1, 3, "h"}}},
      {"t", "r", 1, {{0, 1'048'576, "h"}, {1, 1'048'576, "h"}}}};
  for (const auto& note : worlds) EXPECT_THROW(decode_world(encode(note)), CommError);
  for (const int kind : {-1, 2}) {
    const AgentEvent event{static_cast<AgentEvent::Kind>(kind), {}};
    EXPECT_THROW(decode_agent_event(encode(event)), CommError) << kind;
  }
  const std::string world = encode(WorldNote{"t", "r", 1, {{0, 1, "h"}}});
  const std::string cut = world.substr(0, world.size() - 1);
  for (const auto& note : {std::string(), std::string("x"), cut}) {
    EXPECT_THROW(decode_node(note), CommError) << note;
    EXPECT_THROW(decode_world(note), CommError) << note;
    EXPECT_THROW(decode_agent_event(note), CommError) << note;
  }
  for (const char* note : {"", "0", "65536", "port", "1e3", "99999999999999999999"})
    EXPECT_THROW(decode_port(note), CommError) << note;
}

}  // namespace
}  // namespace cohort::process
