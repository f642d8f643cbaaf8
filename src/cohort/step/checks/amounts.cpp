// SPDX-License-Identifier: Apache-2.0
// R4 also: a collective moves what the records of its bucket say.
#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
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

}  // namespace cohort
