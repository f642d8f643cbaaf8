// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rendezvous.h"

#include <thread>

#include "cohort/comm/endpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/process.h"
#include "cohort/launch/rdzv_token.h"

namespace cohort::process {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLastCall{2};  // after the minimum has come, for more nodes
constexpr seconds kBeat{1};      // a sign of life of each agent
constexpr seconds kSilent{10};   // without one for so long: lost
constexpr milliseconds kStoreTimeout{5'000};  // for one request
constexpr seconds kGoing{1};                  // for an agent that ends

// Whether the numeric address is one of this machine's.
bool is_here(const std::string& address) {
  try {
    return is_loopback_address(address) || local_address_towards(address) == address;
  } catch (const ConfigError&) {
    return false;  // no way leads there
  }
}

// Where the host's stores listen: at its address alone. A host's own name often means
// loopback to itself; where others may come, that is no address to listen at.
std::string listening_address(const Endpoint& endpoint, const std::string& address,
                              const std::string& secret) {
  const bool named = endpoint.host != "localhost" && endpoint.host != address;
  if (secret.empty() || !named || !is_loopback_address(address)) return address;
  return address.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

}  // namespace

Rendezvous::Rendezvous(const LaunchOptions& options)
    : options_(options),
      endpoint_(parse_endpoint(options.rdzv)),
      address_(resolve_host(endpoint_.host)),
      secret_(read_rdzv_token(options.rdzv_token)),
      deadline_(Clock::now() + options.join_timeout) {
  if (!secret_.empty() || is_loopback_address(address_)) return;
  throw ConfigError(
      text("[launch.rdzv] strangers can reach ", options.rdzv,
           ", and no token keeps them out; legal: --rdzv-token FILE, the ",
           "same on every node, made by `umask 077; head -c 32 ",
           "/dev/urandom | base64 > FILE`"));
}

std::optional<NodeWorld> Rendezvous::advance() {
  if (const auto world = look_for_world()) {
    if (world->rfind("refused ", 0) == 0) {
      leave(seconds(2));
      throw ConfigError(world->substr(8));
    }
    return read_world(*world);
  }
  if (Clock::now() < deadline_) return std::nullopt;
  if (!store_) {
    throw CommError(text("[launch.rdzv] nobody answers at ", options_.rdzv, ": ",
                         last_error_, ", for ", options_.join_timeout.count() / 1000,
                         " s; start the agent of the node that has this address"));
  }
  throw CommError(text("[launch.rdzv] only ", present().size(), " nodes came to ",
                       options_.rdzv, " in ", options_.join_timeout.count() / 1000,
                       " s; --nnodes asks for ", options_.min_nodes));
}

// Nothing yet, also when the agent that serves is gone: another may take its place.
std::optional<std::string> Rendezvous::look_for_world() {
  try {
    if (!store_) find_store();
    if (store_ && server_ && !store_->has("world")) close_rendezvous();
    if (store_ && store_->has("world")) return store_->get("world", kStoreTimeout);
  } catch (const CommError& error) {
    last_error_ = error.what();
    server_ = nullptr;
    store_.reset();
  }
  return std::nullopt;
}

std::vector<std::string> Rendezvous::notices() {
  std::vector<std::string> lines;
  if (!server_) return lines;
  for (const std::string& address : server_->take_refused()) {
    lines.push_back(
        text("the agent at ", address, " has another rendezvous token: it is refused"));
  }
  return lines;
}

// The agent that can listen at the endpoint serves the store; the others are its
// guests.
void Rendezvous::find_store() {
  const auto begin = Clock::now();
  if ((is_here(address_) && serve()) || visit()) {
    stranger_since_.reset();
  } else if (is_here(address_)) {
    suspect_stranger(begin);
  }
}

// False where another has the endpoint: an agent, or a stranger.
bool Rendezvous::serve() {
  const std::string listening = listening_address(endpoint_, address_, secret_);
  try {
    auto server = std::make_unique<GuardedStoreServer>(
        StoreDoor{listening, endpoint_.port, secret_});
    // Without a secret the rendezvous itself has no port: the ranks' store has it.
    const int port = secret_.empty() ? endpoint_.port : 0;
    rank_store_ = std::make_unique<StoreServer>(listening, port);
    server_ = server.get();
    store_ = std::move(server);
  } catch (const ConfigError& error) {
    last_error_ = error.what();
    return false;
  }
  id_ = 0;  // also of one that came as a guest before
  store_->set("node/0", card());
  return true;
}

bool Rendezvous::visit() {
  try {
    auto store = std::make_unique<GuardedStore>(
        StoreDoor{address_, endpoint_.port, secret_}, kStoreTimeout);
    id_ = store->add("guests", 1);
    store->set_at_end(text("left/", id_), "");
    store->set(text("node/", id_), card());
    store_ = std::move(store);
    return true;
  } catch (const NobodyThere& error) {
    last_error_ = error.what();
    return false;
  }
}

// An agent of this machine would answer at once; it may just be going, though.
void Rendezvous::suspect_stranger(Clock::time_point since) {
  if (!stranger_since_) stranger_since_ = since;
  if (Clock::now() < *stranger_since_ + kGoing) return;
  throw ConfigError(text("[launch.rdzv] ", options_.rdzv,
                         " is in use, and not by an agent with",
                         secret_.empty() ? "out a token: " : " a token: ", last_error_,
                         "; legal: a port that is free"));
}

std::string Rendezvous::card() const {
  return encode(
      NodeNote{options_.ranks, asked_nodes(), options_.max_restarts, host_name()});
}

// The agents that have come and not gone, in the order of coming.
std::vector<int64_t> Rendezvous::present() {
  std::vector<int64_t> ids;
  const int64_t guests = store_->add("guests", 0);
  for (int64_t id = 0; id <= guests; ++id) {
    // A guest takes a number before it leaves its card.
    if (store_->has(text("node/", id)) && !store_->has(text("left/", id))) {
      ids.push_back(id);
    }
  }
  return ids;
}

// Node 0 decides when everyone is there, and writes down the world.
void Rendezvous::close_rendezvous() {
  std::vector<int64_t> ids = present();
  const int came = std::min<int>(ids.size(), options_.max_nodes);
  if (came < options_.min_nodes) {
    enough_since_ = {};
    return;
  }
  if (enough_since_ == Clock::time_point{}) enough_since_ = Clock::now();
  if (came < options_.max_nodes && Clock::now() < enough_since_ + kLastCall) return;

  ids.resize(came);
  num_nodes_ = came;
  WorldNote world{random_hex(16), random_hex(8), rank_store_->port(), {}};
  for (const int64_t id : ids) {
    const auto note = decode_node(store_->get(text("node/", id), kStoreTimeout));
    if (note.nodes != asked_nodes() || note.max_restarts != options_.max_restarts) {
      store_->set(
          "world",
          text("refused [launch.rdzv] agents disagree: --nnodes ", asked_nodes(),
               " --max-restarts ", options_.max_restarts, " on ", host_name(),
               ", --nnodes ", note.nodes, " --max-restarts ", note.max_restarts, " on ",
               note.host, "; give the same everywhere"));
      return;
    }
    world.nodes.push_back({id, note.ranks, note.host});
  }
  store_->set("world", encode(world));
}

std::string Rendezvous::asked_nodes() const {
  return text(options_.min_nodes, ':', options_.max_nodes);
}

NodeWorld Rendezvous::read_world(const std::string& world) {
  const WorldNote note = decode_world(world);
  NodeWorld result;
  result.token = note.token;
  result.run_id = note.run_id;
  result.num_nodes = static_cast<int>(note.nodes.size());
  result.master_port = note.port;
  result.world_size = 0;
  node_ = -1;
  for (int node = 0; node < result.num_nodes; ++node) {
    hosts_.push_back(note.nodes[node].host);
    if (note.nodes[node].id == id_) {
      node_ = node;
      result.first_rank = result.world_size;
    }
    result.world_size += note.nodes[node].ranks;
  }
  if (node_ < 0) {
    throw CommError(text("[launch.rdzv] came too late: the run at ", options_.rdzv,
                         " has started with ", result.num_nodes,
                         " nodes; start again with all of them"));
  }
  num_nodes_ = result.num_nodes;
  beats_.assign(num_nodes_, {0, Clock::now()});
  result.node_rank = node_;
  result.local_size = options_.ranks;
  result.master_addr = endpoint_.host;
  return result;
}

AgentEvent Rendezvous::publish(int generation, const AgentEvent& event) {
  const std::string key = text("event/", generation);
  if (store_->add(key + "/turn", 1) == 1) store_->set(key, encode(event));
  return decode_agent_event(store_->get(key, kStoreTimeout));
}

std::optional<AgentEvent> Rendezvous::poll(int generation) {
  const std::string key = text("event/", generation);
  if (store_->has(key)) return decode_agent_event(store_->get(key, kStoreTimeout));
  if (Clock::now() < last_beat_ + kBeat) return std::nullopt;
  last_beat_ = Clock::now();
  store_->add(text("beat/", node_), 1);
  if (!server_) return std::nullopt;
  const std::optional<AgentEvent> lost = lost_node();
  if (lost) return publish(generation, *lost);
  return std::nullopt;
}

std::optional<AgentEvent> Rendezvous::lost_node() {
  for (int node = 1; node < num_nodes_; ++node) {
    const int64_t count = store_->add(text("beat/", node), 0);
    Beat& beat = beats_[node];
    if (count != beat.count) beat = {count, Clock::now()};
    if (Clock::now() < beat.seen + kSilent) continue;
    AgentEvent event;
    event.failure.host = hosts_[node];
    event.failure.exit_code = 4;
    event.failure.message = text("the agent of node ", node, " on ", hosts_[node],
                                 " gave no sign of life for ", kSilent.count(), " s");
    return event;
  }
  return std::nullopt;
}

int Rendezvous::renew_store(int generation) {
  const std::string key = text("port/", generation);
  if (server_) {
    rank_store_ =
        std::make_unique<StoreServer>(listening_address(endpoint_, address_, secret_));
    store_->set(key, std::to_string(rank_store_->port()));
  }
  return decode_port(store_->get(key, kStoreTimeout));
}

void Rendezvous::arrive(const std::string& where) { store_->add(where, 1); }

bool Rendezvous::all_arrived(const std::string& where) {
  return store_->add(where, 0) >= num_nodes_;
}

void Rendezvous::leave(std::chrono::milliseconds limit) {
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
