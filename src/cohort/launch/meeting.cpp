// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/meeting.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLastCall{2};       // after the minimum has come, for more nodes
constexpr seconds kBeat{1};           // a sign of life of each agent
constexpr seconds kSilent{10};        // without one for so long: lost
constexpr seconds kStoreTimeout{10};  // of one request
const std::string kPrefix = "cohort/agents/";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string encode(const Event& event) {
  const Failure& f = event.failure;
  return text(static_cast<int>(event.kind), ' ', f.rank, ' ', f.pid, ' ', f.exit_code,
              ' ', f.signal, '\n', one_line(f.host), '\n', one_line(f.message));
}

Event decode_event(const std::string& text) {
  std::istringstream in(text);
  Event event;
  int kind = 0;
  Failure& f = event.failure;
  in >> kind >> f.rank >> f.pid >> f.exit_code >> f.signal;
  in.ignore();
  std::getline(in, f.host);
  std::getline(in, f.message);
  event.kind = static_cast<Event::Kind>(kind);
  return event;
}

Meeting::Meeting(const LaunchOptions& options)
    : options_(options),
      endpoint_(resolve_endpoint(options.rdzv)),
      deadline_(Clock::now() + options.join_timeout) {}

std::optional<NodeWorld> Meeting::advance() {
  if (!store_) find_store();
  if (store_ && server_ && !store_->has(kPrefix + "world")) close_meeting();
  if (store_ && store_->has(kPrefix + "world")) {
    const std::string world = store_->get(kPrefix + "world");
    if (world.rfind("refused ", 0) == 0) {
      leave(seconds(2));
      throw ConfigError(world.substr(8));
    }
    return read_world(world);
  }
  if (Clock::now() < deadline_) return std::nullopt;
  if (!store_) {
    throw CommError(text("[launch.rdzv] nobody answers at ", options_.rdzv, ": ",
                         strerror(last_error_), ", for ",
                         options_.join_timeout.count() / 1000,
                         " s; start the agent of the node that has this address"));
  }
  throw CommError(text("[launch.rdzv] only ", store_->add(kPrefix + "nodes", 0),
                       " nodes came to ", options_.rdzv, " in ",
                       options_.join_timeout.count() / 1000, " s; --nnodes asks for ",
                       options_.min_nodes));
}

void Meeting::find_store() {
  if (UniqueFd listening = try_listen(endpoint_, last_error_)) {
    store_ = std::make_unique<RunStore>(std::move(listening), endpoint_);
    server_ = true;
  } else {
    if (last_error_ != EADDRINUSE && last_error_ != EADDRNOTAVAIL) {
      throw ConfigError(text("[launch.rdzv] cannot listen at ", options_.rdzv, ": ",
                             strerror(last_error_), "; choose another port"));
    }
    if (!answers(endpoint_, milliseconds(500), last_error_)) return;
    try {
      store_ = std::make_unique<RunStore>(endpoint_, milliseconds(kStoreTimeout));
    } catch (const CommError&) {
      last_error_ = EPROTO;  // a server that is just leaving, or a stranger
      return;
    }
  }
  publish_self();
}

void Meeting::publish_self() {
  node_ = server_ ? 0 : static_cast<int>(store_->add(kPrefix + "guests", 1));
  store_->set(text(kPrefix, "node/", node_),
              text(options_.ranks, ' ', options_.min_nodes, ':', options_.max_nodes,
                   ' ', options_.max_restarts, ' ', host_name()));
  store_->add(kPrefix + "nodes", 1);
}

// Node 0 decides when everyone is there, and writes down the world.
void Meeting::close_meeting() {
  // Guests take a number before they publish themselves, so count without gaps.
  int came = 0;
  while (came < options_.max_nodes && store_->has(text(kPrefix, "node/", came))) ++came;
  if (came < options_.min_nodes) return;
  if (enough_since_ == Clock::time_point{}) enough_since_ = Clock::now();
  if (came < options_.max_nodes && Clock::now() < enough_since_ + kLastCall) return;

  num_nodes_ = came;
  std::string world = text(random_hex(16), ' ', random_hex(8), ' ', came, '\n');
  const std::string asked = text(options_.min_nodes, ':', options_.max_nodes);
  for (int node = 0; node < came; ++node) {
    std::istringstream in(store_->get(text(kPrefix, "node/", node)));
    std::string ranks, nodes, restarts, host;
    in >> ranks >> nodes >> restarts >> host;
    if (nodes != asked || std::atoi(restarts.c_str()) != options_.max_restarts) {
      world = text("refused [launch.rdzv] agents disagree: --nnodes ", asked,
                   " --max-restarts ", options_.max_restarts, " on ", host_name(),
                   ", --nnodes ", nodes, " --max-restarts ", restarts, " on ", host,
                   "; give the same everywhere");
      break;
    }
    world += text(ranks, ' ', host, '\n');
  }
  store_->set(kPrefix + "world", world);
}

NodeWorld Meeting::read_world(const std::string& world) {
  std::istringstream in(world);
  NodeWorld result;
  in >> result.token >> result.run_id >> result.num_nodes;
  if (node_ >= result.num_nodes) {
    throw CommError(text("[launch.rdzv] came too late: the run at ", options_.rdzv,
                         " has started with ", result.num_nodes,
                         " nodes; start again with all of them"));
  }
  num_nodes_ = result.num_nodes;
  beats_.assign(num_nodes_, {0, Clock::now()});
  result.world_size = 0;
  for (int node = 0; node < result.num_nodes; ++node) {
    int ranks = 0;
    std::string host;
    in >> ranks >> host;
    hosts_.push_back(host);
    if (node == node_) result.first_rank = result.world_size;
    result.world_size += ranks;
  }
  result.node_rank = node_;
  result.local_size = options_.ranks;
  result.master_addr = endpoint_.host;
  result.master_port = endpoint_.port;
  return result;
}

Event Meeting::publish(int generation, const Event& event) {
  return decode_event(
      store_->set_once(text(kPrefix, "event/", generation), encode(event)));
}

std::optional<Event> Meeting::poll(int generation) {
  const std::string key = text(kPrefix, "event/", generation);
  if (store_->has(key)) return decode_event(store_->get(key));
  if (Clock::now() < last_beat_ + kBeat) return std::nullopt;
  last_beat_ = Clock::now();
  store_->add(text(kPrefix, "beat/", node_), 1);
  if (!server_) return std::nullopt;
  const std::optional<Event> lost = lost_node();
  if (lost) return publish(generation, *lost);
  return std::nullopt;
}

std::optional<Event> Meeting::lost_node() {
  for (int node = 1; node < num_nodes_; ++node) {
    const int64_t count = store_->add(text(kPrefix, "beat/", node), 0);
    Beat& beat = beats_[node];
    if (count != beat.count) beat = {count, Clock::now()};
    if (Clock::now() < beat.seen + kSilent) continue;
    Event event;
    event.failure.host = hosts_[node];
    event.failure.exit_code = 4;
    event.failure.message = text("the agent of node ", node,
                                 " gave no sign of life for ", kSilent.count(), " s");
    return event;
  }
  return std::nullopt;
}

void Meeting::arrive(const std::string& where) { store_->add(kPrefix + where, 1); }

bool Meeting::all_arrived(const std::string& where) {
  return store_->add(kPrefix + where, 0) >= num_nodes_;
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
