// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/meeting.h"

#include <thread>

#include "cohort/comm/endpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/process.h"

namespace cohort::process {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLastCall{2};  // after the minimum has come, for more nodes
constexpr seconds kBeat{1};      // a sign of life of each agent
constexpr seconds kSilent{10};   // without one for so long: lost
constexpr milliseconds kStoreTimeout{5'000};  // of one request
constexpr seconds kGoing{1};                  // for an agent that ends
constexpr milliseconds kKnock{200};           // for a connection

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

// Whether the numeric address is one of this machine's.
bool is_here(const std::string& address) {
  try {
    return is_loopback(address) || local_address_towards(address) == address;
  } catch (const ConfigError&) {
    return false;  // no way leads there
  }
}

// Loopback listens there alone. Any other name listens everywhere, because a host's
// own name often means loopback to itself.
std::string listening_address(const std::string& address) {
  if (is_loopback(address)) return address;
  return address.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

}  // namespace

Meeting::Meeting(const LaunchOptions& options)
    : options_(options),
      endpoint_(parse_endpoint(options.rdzv)),
      address_(resolve_host(endpoint_.host)),
      deadline_(Clock::now() + options.join_timeout) {}

std::optional<NodeWorld> Meeting::advance() {
  if (!store_) find_store();
  if (store_ && server_ && !store_->has("world")) close_meeting();
  if (store_ && store_->has("world")) {
    const std::string world = store_->get("world", kStoreTimeout);
    if (world.rfind("refused ", 0) == 0) {
      leave(seconds(2));
      throw ConfigError(world.substr(8));
    }
    return read_world(world);
  }
  if (Clock::now() < deadline_) return std::nullopt;
  if (!store_) {
    throw CommError(text("[launch.rdzv] nobody answers at ", options_.rdzv, ": ",
                         last_error_, ", for ", options_.join_timeout.count() / 1000,
                         " s; start the agent of the node that has this address"));
  }
  throw CommError(text("[launch.rdzv] only ", store_->add("nodes", 0),
                       " nodes came to ", options_.rdzv, " in ",
                       options_.join_timeout.count() / 1000, " s; --nnodes asks for ",
                       options_.min_nodes));
}

// Whoever can listen at the endpoint serves the store; the others are its clients.
void Meeting::find_store() {
  TcpStoreOptions options{address_, endpoint_.port, "cohort/agents/", kStoreTimeout};
  std::unique_ptr<StoreServer> server;
  if (is_here(address_)) {
    try {
      server =
          std::make_unique<StoreServer>(listening_address(address_), endpoint_.port);
    } catch (const ConfigError& error) {
      last_error_ = error.what();  // another agent has it, or a stranger
    }
  }
  server_ = server != nullptr;
  if (server_) {
    store_ = std::make_unique<TcpStore>(options, std::move(server));
  } else {
    const std::string refusal = await_listener(address_, endpoint_.port, kKnock);
    if (!refusal.empty()) {
      last_error_ = refusal;
      return;
    }
    const auto begin = Clock::now();
    try {
      store_ = std::make_unique<TcpStore>(options);
    } catch (const CommError& error) {
      last_error_ = error.what();
      if (is_here(address_)) suspect_stranger(begin);
      return;
    }
  }
  publish_self();
}

// An agent of this machine would answer at once; it may just be going, though.
void Meeting::suspect_stranger(Clock::time_point since) {
  if (!stranger_since_) stranger_since_ = since;
  if (Clock::now() < *stranger_since_ + kGoing) return;
  throw ConfigError(text("[launch.rdzv] ", options_.rdzv,
                         " is in use, and not by an agent: ", last_error_,
                         "; legal: a port that is free"));
}

void Meeting::publish_self() {
  node_ = server_ ? 0 : static_cast<int>(store_->add("guests", 1));
  store_->set(text("node/", node_),
              encode(NodeNote{options_.ranks, asked_nodes(), options_.max_restarts,
                              host_name()}));
  store_->add("nodes", 1);
}

// Node 0 decides when everyone is there, and writes down the world.
void Meeting::close_meeting() {
  // Guests take a number before they publish themselves, so count without gaps.
  int came = 0;
  while (came < options_.max_nodes && store_->has(text("node/", came))) ++came;
  if (came < options_.min_nodes) return;
  if (enough_since_ == Clock::time_point{}) enough_since_ = Clock::now();
  if (came < options_.max_nodes && Clock::now() < enough_since_ + kLastCall) return;

  num_nodes_ = came;
  WorldNote world{random_hex(16), random_hex(8), {}};
  for (int node = 0; node < came; ++node) {
    const auto note = decode_node(store_->get(text("node/", node), kStoreTimeout));
    if (note.nodes != asked_nodes() || note.max_restarts != options_.max_restarts) {
      store_->set(
          "world",
          text("refused [launch.rdzv] agents disagree: --nnodes ", asked_nodes(),
               " --max-restarts ", options_.max_restarts, " on ", host_name(),
               ", --nnodes ", note.nodes, " --max-restarts ", note.max_restarts, " on ",
               note.host, "; give the same everywhere"));
      return;
    }
    world.nodes.push_back({note.ranks, note.host});
  }
  store_->set("world", encode(world));
}

std::string Meeting::asked_nodes() const {
  return text(options_.min_nodes, ':', options_.max_nodes);
}

NodeWorld Meeting::read_world(const std::string& world) {
  const WorldNote note = decode_world(world);
  NodeWorld result;
  result.token = note.token;
  result.run_id = note.run_id;
  result.num_nodes = static_cast<int>(note.nodes.size());
  if (node_ >= result.num_nodes) {
    throw CommError(text("[launch.rdzv] came too late: the run at ", options_.rdzv,
                         " has started with ", result.num_nodes,
                         " nodes; start again with all of them"));
  }
  num_nodes_ = result.num_nodes;
  beats_.assign(num_nodes_, {0, Clock::now()});
  result.world_size = 0;
  for (int node = 0; node < result.num_nodes; ++node) {
    hosts_.push_back(note.nodes[node].host);
    if (node == node_) result.first_rank = result.world_size;
    result.world_size += note.nodes[node].ranks;
  }
  result.node_rank = node_;
  result.local_size = options_.ranks;
  result.master_addr = endpoint_.host;
  result.master_port = endpoint_.port;
  return result;
}

Event Meeting::publish(int generation, const Event& event) {
  const std::string key = text("event/", generation);
  if (store_->add(key + "/turn", 1) == 1) store_->set(key, encode(event));
  return decode_event(store_->get(key, kStoreTimeout));
}

std::optional<Event> Meeting::poll(int generation) {
  const std::string key = text("event/", generation);
  if (store_->has(key)) return decode_event(store_->get(key, kStoreTimeout));
  if (Clock::now() < last_beat_ + kBeat) return std::nullopt;
  last_beat_ = Clock::now();
  store_->add(text("beat/", node_), 1);
  if (!server_) return std::nullopt;
  const std::optional<Event> lost = lost_node();
  if (lost) return publish(generation, *lost);
  return std::nullopt;
}

std::optional<Event> Meeting::lost_node() {
  for (int node = 1; node < num_nodes_; ++node) {
    const int64_t count = store_->add(text("beat/", node), 0);
    Beat& beat = beats_[node];
    if (count != beat.count) beat = {count, Clock::now()};
    if (Clock::now() < beat.seen + kSilent) continue;
    Event event;
    event.failure.host = hosts_[node];
    event.failure.exit_code = 4;
    event.failure.message = text("the agent of node ", node, " on ", hosts_[node],
                                 " gave no sign of life for ", kSilent.count(), " s");
    return event;
  }
  return std::nullopt;
}

int Meeting::renew_store(int generation) {
  const std::string key = text("port/", generation);
  if (server_) {
    rank_store_ = std::make_unique<StoreServer>(listening_address(address_));
    store_->set(key, std::to_string(rank_store_->port()));
  }
  return decode_port(store_->get(key, kStoreTimeout));
}

void Meeting::arrive(const std::string& where) { store_->add(where, 1); }

bool Meeting::all_arrived(const std::string& where) {
  return store_->add(where, 0) >= num_nodes_;
}

void Meeting::leave(std::chrono::milliseconds limit) {
  if (!store_) return;
  try {
    arrive("gone");
    const auto deadline = Clock::now() + limit;
    while (server_ && num_nodes_ > 0 && !all_arrived("gone") &&
           Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(20));
    }
  } catch (const CommError&) {
    // Nothing is left to be said to anyone.
  }
}

}  // namespace cohort::process
