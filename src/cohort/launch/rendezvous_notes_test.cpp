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
  Event event;
  event.kind = Event::kStop;
  event.failure = {.rank = 3, .host = "h", .signal = 15, .message = "two\nlines"};
  const auto back = decode_event(encode(event));
  EXPECT_EQ(back.kind, Event::kStop);
  EXPECT_EQ(back.failure.signal, 15);
  EXPECT_EQ(back.failure.message, "two lines");
  EXPECT_EQ(decode_port("29500"), 29500);
}

// A port that is open to others is written to by others.
TEST(MeetingNotes, OfStrangersAreRefused) {
  for (const char* note : {"", "x", "0 1:1 0 h", "2000000 1:1 0 h", "1 1:1 -1 h", "1"})
    EXPECT_THROW(decode_node(note), CommError) << note;
  for (const char* note :
       {"", "t r 0 1\n", "t r 2000000000 1\n0 1 h\n", "t r 2 1\n0 1 h\n",
        "t r 1 1\n0 0 h\n", "t r 1 0\n0 1 h\n", "t r 1 1\n0 1048577 h\n",
        "t r 2 1\n0 1048576 h\n1 1048576 h\n"})
    EXPECT_THROW(decode_world(note), CommError) << note;
  for (const char* note : {"", "2 0 0 0 0\n", "-1 0 0 0 0\n", "0 99999999999 0 0 0\n"})
    EXPECT_THROW(decode_event(note), CommError) << note;
  for (const char* note : {"", "0", "65536", "port", "1e3", "99999999999999999999"})
    EXPECT_THROW(decode_port(note), CommError) << note;
}

}  // namespace
}  // namespace cohort::process
