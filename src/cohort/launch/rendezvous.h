// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/guarded_store.h"
#include "cohort/comm/tcp_store.h"
#include "cohort/launch/agent.h"
#include "cohort/launch/environment.h"
#include "cohort/launch/process_tree.h"
#include "cohort/launch/rendezvous_notes.h"

namespace cohort::process {

// The agents of several nodes, meeting in a guarded store that one of them serves.
//
// The agent that can listen at the endpoint is node 0; the others are numbered as
// they come. Only agents that know the secret come in; without one the endpoint must be
// loopback, and only agents of this user on this machine come in. Until the world is
// written down an agent may die, or lose the store, and come again. Nothing here waits
// for long: the agent calls advance() and poll() between its other duties.
//
// Failure: CommError when the store is lost or the join timeout passes; ConfigError
// when the agents disagree about the run, have different secrets, or have none where
// they need one.
class Rendezvous {
 public:
  explicit Rendezvous(const LaunchOptions& options);

  // Moves on; the world as soon as everyone agrees on it.
  std::optional<NodeWorld> advance();

  // What the user should know, since the last call.
  std::vector<std::string> notices();

  // Publishes; returns the event that was first in this generation.
  AgentEvent publish(int generation, const AgentEvent& event);
  // Shows that this agent lives; on node 0 also looks for others that do not. The
  // event of this generation, if there is one.
  std::optional<AgentEvent> poll(int generation);

  // A fresh store for the ranks of a restart, served by node 0; returns its port.
  // PyTorch finds keys of the old generation otherwise.
  int renew_store(int generation);

  // Counted rendezvous, by name: arrive once, then ask.
  void arrive(const std::string& where);
  bool all_arrived(const std::string& where);

  // The last word. The server waits here, for at most `limit`, until the others have
  // gone, since they still need the store.
  void leave(std::chrono::milliseconds limit);

 private:
  void find_store();
  bool serve();
  bool visit();
  void suspect_stranger(Clock::time_point since);
  std::string card() const;
  std::optional<std::string> look_for_world();
  std::vector<int64_t> present();
  void close_rendezvous();
  NodeWorld read_world(const std::string& world);
  std::string asked_nodes() const;  // MIN:MAX
  std::optional<AgentEvent> lost_node();

  const LaunchOptions& options_;
  Endpoint endpoint_;
  std::string address_;  // the host's, numeric
  std::string secret_;
  Clock::time_point deadline_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoreServer> rank_store_;
  GuardedStoreServer* server_ = nullptr;  // store_, on node 0
  int64_t id_ = 0;                        // in the order of coming
  int node_ = 0;
  int num_nodes_ = 0;
  std::optional<Clock::time_point> stranger_since_;
  std::string last_error_;
  Clock::time_point enough_since_{};  // when the minimum had come
  Clock::time_point last_beat_{};
  struct Beat {
    int64_t count = 0;
    Clock::time_point seen{};
  };
  std::vector<Beat> beats_;
  std::vector<std::string> hosts_;
};

}  // namespace cohort::process
