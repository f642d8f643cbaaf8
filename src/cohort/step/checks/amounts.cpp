// SPDX-License-Identifier: Apache-2.0
// R4 also: a collective moves what the records of its bucket say. And what a rank sends
// and receives in a step, by the way it goes.
#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

class Amounts {
 public:
  explicit Amounts(const Schedule& schedule) : schedule_(schedule) {}

  // kNone: the records do not say.
  int64_t of(const Action& action) const {
    if (action.kind == ActionKind::kVote) return kVoteBytes;
    if (action.buckets.size() != 1) return kNone;
    if (action.buckets[0] == kLossBucket) return kLossBytes;
    const int bucket = action.buckets[0];
    const int64_t numel = schedule_.buckets[bucket].numel;
    const Precision& precision = schedule_.precision;
    switch (action.kind) {
      case ActionKind::kReduce:
        return (is_of_shards(action) ? schedule_.shard_of(bucket) : numel) *
               size_of(is_of_uses(action) ? sum_type(schedule_) : precision.reduce);
      case ActionKind::kReduceScatter:
      case ActionKind::kReduceUpdate:
        return numel * size_of(precision.reduce);
      case ActionKind::kGather:
        return numel * size_of(precision.compute);
      case ActionKind::kMirror:
        return schedule_.shard_of(bucket) * size_of(sum_type(schedule_));
      default:
        return kNone;
    }
  }

 private:
  // Between copies of a state that is cut.
  bool is_of_shards(const Action& action) const {
    const Group* const group = schedule_.group_of(action.lane);
    return group && !group->axes.meets(schedule_.buckets[action.buckets[0]].cut);
  }

  // Uses of a tied parameter are sums already, and are kept as such.
  bool is_of_uses(const Action& action) const {
    const Group* const group = schedule_.group_of(action.lane);
    return group && !group->places.empty();
  }

  const Schedule& schedule_;
};

void add(MovedBytes& way, double sent, double received) {
  way.sent += sent;
  way.received += received;
}

// Around a ring a rank receives as much as it sends.
void add_collective(MovedBytes& way, double factor, int64_t bytes) {
  const double moved = factor * static_cast<double>(bytes);
  add(way, moved, moved);
}

void add_transfer(MovedBytes& way, const Action& action) {
  const auto bytes = static_cast<double>(action.bytes);
  const bool sends = action.kind == ActionKind::kSend;
  add(way, sends ? bytes : 0, sends ? 0 : bytes);
}

}  // namespace

void check_amounts(const Schedule& schedule, const RoleView& role) {
  if (schedule.buckets.empty()) return;
  const Amounts amounts(schedule);
  for (int i = 0; i < role.size(); ++i) {
    const int64_t legal = amounts.of(role.at(i));
    if (legal != kNone && role.at(i).bytes != legal)
      role.refuse(i, text("R4: moves ", role.at(i).bytes, " bytes; legal: ", legal));
  }
}

RoleVolume count_volume(const Schedule& schedule, const Role& role) {
  RoleVolume volume;
  for (const auto& action : role.actions) {
    for (const auto& call : action.calls)
      add_collective(
          volume.blocks,
          ring_factor(call.op, schedule.size_of(schedule.groups[call.group])),
          call.bytes);
    if (action.lane == kComputeLane || schedule.is_copy(action.lane)) continue;
    if (const Group* const group = schedule.group_of(action.lane))
      add_collective(volume.groups, ring_factor(action.kind, schedule.size_of(*group)),
                     action.bytes);
    else
      add_transfer(volume.links, action);
  }
  return volume;
}

}  // namespace cohort
