// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/step/schedule.h"

namespace cohort {

// The groups of a rank that sum and share state. Without hybrid sharding `shard` is
// `dp` and there is no `replicate`; without a pipeline and tensor parallelism `dp` is
// the world. `alike` have the same parts of tensors as this rank: all, where none are
// cut.
struct RankGroups {
  Communicator* world = nullptr;
  Communicator* dp = nullptr;
  Communicator* shard = nullptr;
  Communicator* replicate = nullptr;
  Communicator* alike = nullptr;
  int part = 0, parts = 1;  // which part of tensors it has, of how many

  // Nothing but data parallelism, between all of these.
  static RankGroups of(Communicator& all) { return {&all, &all, &all, nullptr, &all}; }
};

// All that a rank communicates through: a communicator for each group of a schedule
// that is not the world, for each link along its pipeline, and a second one for each
// group that blocks use inside.
class RankChannels {
 public:
  // Collective over `world`, which is borrowed.
  RankChannels(const Schedule& schedule, Communicator& world);

  const RankGroups& groups() const { return groups_; }
  // The pair of ranks at the ends of that lane's link, and which rank the other one is.
  struct Link {
    Communicator* comm;
    int peer;
  };
  Link link(int lane) const;
  // The places that have a parameter together, where that lane sums its gradients: its
  // ranks are in the order of places.
  Communicator& tied(int lane) const { return *tied_.at(lane); }
  // Collective: all of them meet once, with memory of that device. Ranks of GPUs
  // connect when they first meet, and cannot while a link of theirs waits for its peer.
  void connect(at::Device device) const;
  // The ranks that differ along these axes alone, for calls inside blocks: another
  // communicator than that of the group's lane, which has calls in flight meanwhile.
  // Null where the rank is alone. BugError unless the schedule has such calls.
  Communicator* inner(AxisSet axes) const;
  // This rank makes no more calls inside blocks: peers that wait in one hear of it at
  // once, and are free for what else is in flight.
  void leave_blocks();

 private:
  Communicator* group(AxisSet axes);

  const Schedule& schedule_;
  const Mesh& mesh_;
  Communicator& world_;
  std::vector<std::unique_ptr<Communicator>> parts_;
  std::map<int, std::unique_ptr<Communicator>> links_;  // by lane
  std::map<int, std::unique_ptr<Communicator>> inner_;  // by group
  std::map<int, std::unique_ptr<Communicator>> tied_;   // by lane
  RankGroups groups_;
};

}  // namespace cohort
