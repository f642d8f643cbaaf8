// SPDX-License-Identifier: Apache-2.0
// R10, R11, R13, as far as they tell of parameters: whole when they are used, of one
// version for a slice, and new everywhere when the step is committed.
#include <map>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

class Parameters {
 public:
  Parameters(const RoleView& role, const StepFacts& facts)
      : role_(role), facts_(facts), buckets_(facts.buckets) {
    for (int i : role.all(ActionKind::kReduceScatter))
      buckets_[role.at(i).buckets[0]].in_shards = true;
  }

  void check() {
    for (at_ = 0; at_ < role_.size(); ++at_) follow(role_.at(at_));
    for (int b = 0; b < facts_.buckets; ++b) check_end(b);
  }

 private:
  struct Life {
    bool in_shards = false;  // each rank has a shard of the gradient's sum
    bool stale = false;      // only that shard of the whole parameters is new
    int version = 0;         // that of the state in the whole parameters
    // The action that did it last:
    int gathered = kNone, freed = kNone;

    bool is_whole() const { return gathered > freed; }
  };

  [[noreturn]] void refuse(const char* rule, const std::string& why) const {
    role_.refuse(at_, text(rule, ": ", why));
  }

  void follow(const Action& action) {
    switch (action.kind) {
      case ActionKind::kGather:
        return gather(action);
      case ActionKind::kFree:
        return drop(buckets_[action.buckets[0]]);
      case ActionKind::kUpdate:
        return renew(action);
      case ActionKind::kReduceUpdate:
        return note_version(action);  // everywhere
      case ActionKind::kCommit:
        return check_results(action);
      default:
        if (action.block != kNone) use(action);
    }
  }

  void use(const Action& action) {
    for (const auto& access : action.reads) {
      if (access.value.what != What::kWhole || access.value.of < 0) continue;
      const int bucket = access.value.of;
      const Life& life = buckets_[bucket];
      if (facts_.sharded[bucket] && !life.is_whole())
        refuse("R2",
               text("computes with ", access.value.text(),
                    life.freed == kNone
                        ? std::string(", which no Gather made whole")
                        : text(", which a Free dropped (action ", life.freed, ")")));
      if (life.stale)
        refuse("R11", text("computes with bucket ", bucket,
                           ", of which only a shard is updated"));
      const auto [first, is_new] = used_.try_emplace(
          std::tuple(action.block, action.slice, bucket), life.version);
      if (first->second != life.version)
        refuse("R11", text("computes with bucket ", bucket, " after ", life.version,
                           " updates, and its Forward after ", first->second));
    }
  }

  void gather(const Action& action) {
    Life& life = buckets_[action.buckets[0]];
    if (facts_.sharded[action.buckets[0]] ? life.is_whole() : !life.stale)
      refuse("R10",
             text("makes whole what is whole",
                  life.gathered == kNone ? std::string()
                                         : text(" since action ", life.gathered)));
    life.gathered = at_;
    life.stale = false;
    note_version(action);
  }

  void drop(Life& life) const {
    if (!life.is_whole()) refuse("R10", "drops what is not whole");
    life.freed = at_;
  }

  void renew(const Action& action) {
    Life& life = buckets_[action.buckets[0]];
    for (const auto& access : action.writes)
      if (access.value.what == What::kWhole) life.stale = life.in_shards;
    note_version(action);
  }

  // Which state the parameters are made of that an action leaves.
  void note_version(const Action& action) {
    int version = 0;
    bool makes = false;
    for (const auto* accesses : {&action.reads, &action.writes})
      for (const auto& access : *accesses)
        if (access.value.what == What::kState) version = access.value.version;
    for (const auto& access : action.writes) makes |= access.value.what == What::kWhole;
    if (makes) buckets_[action.buckets[0]].version = version;
  }

  void check_results(const Action& commit) const {
    for (const auto& access : commit.reads)
      if (access.value.what == What::kWhole && access.value.of >= 0 &&
          buckets_[access.value.of].stale)
        refuse("R13", text("reads ", access.value.text(),
                           ", of which only a shard is updated: no Gather follows"));
  }

  void check_end(int bucket) const {
    const Life& life = buckets_[bucket];
    if (facts_.sharded[bucket] && life.is_whole())
      role_.refuse(life.gathered, "R10: is never followed by a Free");
  }

  const RoleView& role_;
  const StepFacts& facts_;
  int at_ = 0;
  std::vector<Life> buckets_;
  std::map<std::tuple<int, int, int>, int> used_;  // block, slice, bucket: version
};

}  // namespace

void check_parameters(const RoleView& role, const StepFacts& facts) {
  Parameters(role, facts).check();
}

}  // namespace cohort
