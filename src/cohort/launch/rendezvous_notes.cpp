// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rendezvous_notes.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/core/record.h"

namespace cohort::process {
namespace {

constexpr int64_t kMostRanks = 1 << 20;  // in a world

std::string no_note(const char* what) {
  return text("[launch.rdzv] the agents' store holds no ", what);
}

template <typename Note>
Note read_note(const std::string& record, const char* what) {
  return read_record<Note>(record, ErrorKind::kComm, no_note(what));
}

bool is_port(int64_t port) { return port >= 1 && port <= 65'535; }
bool is_ranks(int64_t ranks) { return ranks >= 1 && ranks <= kMostRanks; }

}  // namespace

auto record_fields(Alike<NodeNote> auto& n) {
  return std::tie(n.ranks, n.nodes, n.max_restarts, n.host);
}
auto record_fields(Alike<WorldNote::Node> auto& n) {
  return std::tie(n.id, n.ranks, n.host);
}
auto record_fields(Alike<WorldNote> auto& n) {
  return std::tie(n.token, n.run_id, n.port, n.nodes);
}
auto record_fields(Alike<AgentEvent> auto& e) {
  auto& f = e.failure;
  return std::tie(e.kind, f.rank, f.host, f.pid, f.exit_code, f.signal, f.message);
}

std::string encode(const NodeNote& note) { return to_record(note); }
std::string encode(const WorldNote& note) { return to_record(note); }
std::string encode(const AgentEvent& event) { return to_record(event); }

Endpoint parse_endpoint(const std::string& given) {
  const size_t colon = given.rfind(':');
  Endpoint endpoint;
  endpoint.host = given.substr(0, colon);
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  const std::string digits = colon == std::string::npos ? "" : given.substr(colon + 1);
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, endpoint.port);
  const bool whole = error == std::errc() && rest == end;
  if (!whole || endpoint.host.empty() || endpoint.port < 1 || endpoint.port > 65535) {
    throw ConfigError(text("[launch.rdzv] not an address: '", given,
                           "'; legal: HOST:PORT, port 1 to 65535"));
  }
  return endpoint;
}

NodeNote decode_node(const std::string& record) {
  auto note = read_note<NodeNote>(record, "node");
  if (!is_ranks(note.ranks) || note.max_restarts < 0)
    throw CommError(text(no_note("node"), ": ", note.ranks, " ranks, ",
                         note.max_restarts, " restarts"));
  return note;
}

WorldNote decode_world(const std::string& record) {
  auto note = read_note<WorldNote>(record, "world");
  int64_t ranks = 0;
  bool legal = is_port(note.port);
  for (const auto& node : note.nodes) {
    legal = legal && is_ranks(node.ranks);
    ranks += node.ranks;
  }
  if (!legal || !is_ranks(ranks))
    throw CommError(text(no_note("world"), ": ", ranks, " ranks on ", note.nodes.size(),
                         " nodes, port ", note.port));
  return note;
}

AgentEvent decode_agent_event(const std::string& record) {
  auto event = read_note<AgentEvent>(record, "event");
  if (event.kind != AgentEvent::kFault && event.kind != AgentEvent::kStop)
    throw CommError(text(no_note("event"), ": kind ", static_cast<int>(event.kind)));
  for (auto* line : {&event.failure.host, &event.failure.message})
    std::replace(line->begin(), line->end(), '\n', ' ');
  return event;
}

int decode_port(const std::string& encoded) {
  const auto port = try_parse_int(encoded);
  if (!port || !is_port(*port))
    throw CommError(text(no_note("port"), ": '", encoded.substr(0, 200), "'"));
  return static_cast<int>(*port);
}

}  // namespace cohort::process
