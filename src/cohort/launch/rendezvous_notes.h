// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/launch/agent.h"

// What agents of several nodes leave for one another in their store, as records.
// Nothing in a note is trusted: decoding throws CommError, in one line, for what is
// none.
namespace cohort::process {

// HOST:PORT or [V6]:PORT. ConfigError for anything else.
struct Endpoint {
  std::string host;
  int port = 0;
};
Endpoint parse_endpoint(const std::string& text);

// What an agent says of itself when it comes.
struct NodeNote {
  int ranks = 1;
  std::string nodes;  // MIN:MAX, as it was asked for
  int max_restarts = 0;
  std::string host;
};
std::string encode(const NodeNote& note);
NodeNote decode_node(const std::string& record);

// The world that node 0 has decided on.
struct WorldNote {
  std::string token;
  std::string run_id;
  int port = 0;  // where the ranks' store listens
  struct Node {
    int64_t id = 0;  // that its agent took when it came
    int ranks = 1;
    std::string host;
  };
  std::vector<Node> nodes;
};
std::string encode(const WorldNote& note);
WorldNote decode_world(const std::string& record);

// What one agent tells the others about a generation; the first one to speak wins.
struct AgentEvent {
  enum Kind : int { kFault, kStop } kind = kFault;
  Failure failure;  // kFault; kStop has only its signal
};
std::string encode(const AgentEvent& event);
AgentEvent decode_agent_event(
    const std::string& record);  // host and message have one line each

// A port as text, 1 to 65535.
int decode_port(const std::string& text);

}  // namespace cohort::process
