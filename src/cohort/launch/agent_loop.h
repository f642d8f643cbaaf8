// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/comm/tcp_store.h"
#include "cohort/launch/elastic_ranks.h"
#include "cohort/launch/fixed_ranks.h"
#include "cohort/launch/rendezvous.h"
#include "cohort/launch/resize_socket.h"
#include "cohort/launch/signals.h"

namespace cohort::process {

// Between two looks at the rendezvous of several nodes.
inline constexpr std::chrono::milliseconds kRendezvousInterval{150};

// One life of launch(): see there.
class Agent {
 public:
  explicit Agent(const LaunchOptions& options);
  LaunchResult run();

 private:
  bool join();
  void run_elastic();
  bool run_fixed();
  bool agree_to_restart();
  void note_strangers();
  void say_last_word();
  void flush();

  void wait(RankGroup* ranks);
  void on_signal(int signal, RankGroup* ranks);
  void suspend(RankGroup* ranks);
  void watch_rendezvous(FixedRanks& ranks);
  void on_event(const AgentEvent& event, FixedRanks& ranks);
  void wait_for_other_nodes(FixedRanks& ranks);
  void conclude(FixedRanks& ranks);
  void drive(RankGroup& ranks);
  void report(const Failure& failure);
  std::string resize(int ranks);
  Failure zygote_failure() const;

  void say(const std::string& line) { err_.write("[launch] " + line + "\n", this); }

  const LaunchOptions& options_;
  SignalScope signals_;
  ZygoteHandle zygote_;  // before the first thread, which is the store's
  ResizeServer resize_socket_;
  AgentStream out_, err_;
  std::unique_ptr<StoreServer> store_;  // one node's own; several meet in another
  std::unique_ptr<Rendezvous> rendezvous_;
  RankPlan plan_;
  ElasticRanks* elastic_ = nullptr;  // while it runs
  int generation_ = 0;
  std::optional<AgentEvent> event_;  // in this generation, from any node
  Clock::time_point next_look_{};
  LaunchResult result_;
};

}  // namespace cohort::process
