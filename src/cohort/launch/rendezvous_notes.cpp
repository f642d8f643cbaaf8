// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rendezvous_notes.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort::process {
namespace {

constexpr int kMostNodes = 1 << 16;
constexpr int64_t kMostRanks = 1 << 20;  // of a world

[[noreturn]] void refuse_note(const char* what, const std::string& found) {
  throw CommError(text("[launch.rdzv] the agents' store holds no ", what, ": '",
                       found.substr(0, 200), "'"));
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

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

std::string encode(const NodeNote& note) {
  return text(note.ranks, ' ', note.nodes, ' ', note.max_restarts, ' ', note.host);
}

NodeNote decode_node(const std::string& encoded) {
  NodeNote note;
  std::istringstream in(encoded);
  in >> note.ranks >> note.nodes >> note.max_restarts >> note.host;
  if (!in || note.ranks < 1 || note.ranks > kMostRanks || note.max_restarts < 0)
    refuse_note("node", encoded);
  return note;
}

std::string encode(const WorldNote& note) {
  std::string out =
      text(note.token, ' ', note.run_id, ' ', note.nodes.size(), ' ', note.port, '\n');
  for (const auto& node : note.nodes)
    out += text(node.id, ' ', node.ranks, ' ', node.host, '\n');
  return out;
}

WorldNote decode_world(const std::string& encoded) {
  WorldNote note;
  std::istringstream in(encoded);
  int count = 0;
  in >> note.token >> note.run_id >> count >> note.port;
  if (!in || count < 1 || count > kMostNodes || note.port < 1 || note.port > 65'535)
    refuse_note("world", encoded);
  int64_t ranks = 0;
  for (int i = 0; i < count; ++i) {
    WorldNote::Node node;
    in >> node.id >> node.ranks >> node.host;
    if (!in || node.ranks < 1 || node.ranks > kMostRanks) refuse_note("world", encoded);
    ranks += node.ranks;
    note.nodes.push_back(std::move(node));
  }
  if (ranks > kMostRanks) refuse_note("world", encoded);
  return note;
}

std::string encode(const Event& event) {
  const Failure& f = event.failure;
  return text(static_cast<int>(event.kind), ' ', f.rank, ' ', f.pid, ' ', f.exit_code,
              ' ', f.signal, '\n', one_line(f.host), '\n', one_line(f.message));
}

Event decode_event(const std::string& encoded) {
  std::istringstream in(encoded);
  Event event;
  int kind = 0;
  Failure& f = event.failure;
  in >> kind >> f.rank >> f.pid >> f.exit_code >> f.signal;
  if (!in || (kind != Event::kFault && kind != Event::kStop))
    refuse_note("event", encoded);
  in.ignore();
  std::getline(in, f.host);
  std::getline(in, f.message);
  event.kind = static_cast<Event::Kind>(kind);
  return event;
}

int decode_port(const std::string& encoded) {
  const auto port = try_parse_int(encoded);
  if (!port || *port < 1 || *port > 65'535) refuse_note("port", encoded);
  return static_cast<int>(*port);
}

}  // namespace cohort::process
