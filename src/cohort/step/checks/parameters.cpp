// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

class Parameters {
 public:
  Parameters(const RoleView& role, const StepFacts& facts)
      : role_(role),
        facts_(facts),
        whole_(facts.buckets, kNone),
        gathered_(facts.buckets, kNone),
        dropped_(facts.buckets, kNone),
        updated_(facts.buckets, kNone),
        scattered_(facts.buckets, kNone) {}

  void check() {
    for (int i = 0; i < role_.size(); ++i) {
      const Action& action = role_.at(i);
      if (action.block != kNone)
        for (int bucket : action.buckets) use(i, bucket);
      if (action.kind == ActionKind::kGather) gather(i, action.buckets[0]);
      if (action.kind == ActionKind::kFree) drop(i, action.buckets[0]);
      if (action.kind == ActionKind::kUpdate) update(i, action.buckets[0]);
      if (action.kind == ActionKind::kReduceScatter) scattered_[action.buckets[0]] = i;
    }
    for (int b = 0; b < facts_.buckets; ++b) check_end(b);
  }

 private:
  void use(int i, int bucket) {
    if (updated_[bucket] != kNone)
      role_.refuse(i, text("uses bucket ", bucket, " after its update (action ",
                           updated_[bucket], ")"));
    if (!facts_.sharded[bucket]) return;
    if (whole_[bucket] == kNone)
      role_.refuse(i,
                   text("uses bucket ", bucket, ", which is not whole",
                        dropped_[bucket] == kNone
                            ? std::string("; a Gather must come first")
                            : text(" since its Free (action ", dropped_[bucket], ")")));
    role_.require_before(whole_[bucket], i, "parameters must be whole when used");
  }

  void gather(int i, int bucket) {
    if (!facts_.sharded[bucket]) return gather_updated(i, bucket);
    if (whole_[bucket] != kNone)
      role_.refuse(i, text("makes whole what action ", whole_[bucket], " made whole"));
    if (updated_[bucket] != kNone)
      role_.refuse(i, text("comes after the update of its bucket (action ",
                           updated_[bucket], ")"));
    if (dropped_[bucket] != kNone)
      role_.require_before(dropped_[bucket], i, "the memory must be free");
    whole_[bucket] = gathered_[bucket] = i;
  }

  // Parameters that are whole all the time but updated in shards.
  void gather_updated(int i, int bucket) {
    if (scattered_[bucket] == kNone) role_.refuse(i, "makes whole what is whole");
    if (updated_[bucket] == kNone)
      role_.refuse(i, "comes before the update of its bucket");
    if (gathered_[bucket] != kNone)
      role_.refuse(i, text("was done already by action ", gathered_[bucket]));
    role_.require_before(updated_[bucket], i, "what was updated is gathered");
    gathered_[bucket] = i;
  }

  void drop(int i, int bucket) {
    if (whole_[bucket] == kNone) role_.refuse(i, "drops what is not whole");
    role_.require_before(whole_[bucket], i, "only what is whole can be dropped");
    whole_[bucket] = kNone;
    dropped_[bucket] = i;
  }

  void update(int i, int bucket) {
    updated_[bucket] = i;
    if (facts_.sharded[bucket] && gathered_[bucket] != kNone)
      role_.require_before(gathered_[bucket], i,
                           "it would gather what is being updated");
  }

  void check_end(int bucket) const {
    if (whole_[bucket] != kNone)
      role_.refuse(whole_[bucket], "is never followed by a Free");
    if (!facts_.sharded[bucket] && scattered_[bucket] != kNone &&
        gathered_[bucket] == kNone)
      role_.refuse(scattered_[bucket],
                   "leaves each rank a shard, and no Gather follows its update");
  }

  const RoleView& role_;
  const StepFacts& facts_;
  // By bucket, the action that did it last:
  std::vector<int> whole_, gathered_, dropped_, updated_, scattered_;
};

}  // namespace

void check_parameters(const RoleView& role, const StepFacts& facts) {
  Parameters(role, facts).check();
}

}  // namespace cohort
