// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// What happens to the gradient of one bucket in a role, each list in order.
struct Life {
  std::vector<int> last_add;  // by slice: the last Backward that adds to it
  std::vector<int> scatters;
  std::vector<int> reduces;
  std::vector<int> mirrors;
  std::vector<int> updates;
  std::vector<int> offloads;
  std::vector<int> fetches;
  int gather = kNone;
};

class Gradients {
 public:
  Gradients(const Schedule& schedule, const RoleView& role, const StepFacts& facts,
            bool elastic)
      : schedule_(schedule),
        role_(role),
        facts_(facts),
        elastic_(elastic),
        mirrors_(needs_mirrors()),
        lives_(facts.buckets) {
    for (auto& life : lives_) life.last_add.assign(facts.rounds, kNone);
    for (int i = 0; i < role.size(); ++i) note(i);
  }

  void check() const {
    for (int b = 0; b < facts_.buckets; ++b) {
      const Life& life = lives_[b];
      if (!facts_.trained[b]) {
        refuse_any(life);
        continue;
      }
      require_one(life.updates, text("Update of bucket ", b));
      const std::vector<int> ready =
          schedule_.world() > 1 ? check_reduced(b, life) : adds_of(life);
      if (schedule_.world() == 1 && !life.mirrors.empty()) refuse_mirror(life);
      check_update(b, life, ready);
    }
  }

 private:
  bool needs_mirrors() const {
    if (!role_.all(ActionKind::kMirror).empty()) return true;
    const auto& needs = role_.at(role_.size() - 1).needs;
    return std::find(needs.begin(), needs.end(), ActionKind::kMirror) != needs.end();
  }

  void note(int i) {
    const Action& action = role_.at(i);
    if (action.kind == ActionKind::kBackward)
      for (int bucket : action.buckets) lives_[bucket].last_add[action.slice] = i;
    if (action.block != kNone || action.buckets.size() != 1) return;
    if (action.buckets[0] == kLossBucket) return;
    Life& life = lives_[action.buckets[0]];
    if (action.kind == ActionKind::kReduceScatter) life.scatters.push_back(i);
    if (action.kind == ActionKind::kReduce) life.reduces.push_back(i);
    if (action.kind == ActionKind::kMirror) life.mirrors.push_back(i);
    if (action.kind == ActionKind::kUpdate) life.updates.push_back(i);
    if (action.kind == ActionKind::kOffload) life.offloads.push_back(i);
    if (action.kind == ActionKind::kFetch) life.fetches.push_back(i);
    if (action.kind == ActionKind::kGather) life.gather = i;
  }

  void refuse_any(const Life& life) const {
    for (const auto* list : {&life.scatters, &life.reduces, &life.mirrors,
                             &life.updates, &life.offloads, &life.fetches})
      if (!list->empty())
        role_.refuse(list->front(),
                     "Commit does not name its bucket among the updated");
  }

  void require_one(const std::vector<int>& actions, const std::string& what) const {
    if (actions.empty()) role_.refuse(text("there is no ", what, "; legal: one"));
    if (actions.size() > 1)
      role_.refuse(actions[1], text("was done already by action ", actions[0]));
  }

  std::vector<int> adds_of(const Life& life) const {
    std::vector<int> adds = life.last_add;
    std::erase(adds, kNone);
    return adds;
  }

  const Group& group_of(int action) const {
    return *schedule_.group_of(role_.at(action).lane);
  }

  int size_of(int action) const { return schedule_.size_of(group_of(action)); }

  // Returns the actions after which the sum over all ranks is there.
  std::vector<int> check_reduced(int bucket, const Life& life) const {
    const bool scattered = !life.scatters.empty();
    const auto& first = scattered ? life.scatters : life.reduces;
    if (first.empty())
      role_.refuse(text("the gradient of bucket ", bucket, " is never reduced"));
    check_cover(life, first);
    if (!scattered) {
      for (int i : first) require_size(i, size_of(i));
      if (!life.mirrors.empty()) refuse_mirror(life);
      return first;
    }
    const int shards = size_of(first[0]);
    if (life.reduces.empty()) {
      require_size(first[0], shards);
      return check_mirrored(bucket, life);
    }
    if (!life.mirrors.empty()) refuse_mirror(life);
    check_replicas(life, first);
    return life.reduces;
  }

  [[noreturn]] void refuse_mirror(const Life& life) const {
    role_.refuse(life.mirrors[0],
                 "hands on a sum that others have; legal: shares that one rank has");
  }

  // One rank alone has the sum of a share, until the next has it too.
  std::vector<int> check_mirrored(int bucket, const Life& life) const {
    if (!mirrors_ && !elastic_) return life.scatters;
    require_one(life.mirrors, text("Mirror of bucket ", bucket));
    const int mirror = life.mirrors[0];
    const int lane = role_.at(life.scatters[0]).lane;
    if (role_.at(mirror).lane != lane)
      role_.refuse(mirror, text("is in lane ", role_.at(mirror).lane, "; legal: lane ",
                                lane, ", of the ranks that share the sum"));
    for (int i : life.scatters)
      role_.require_before(i, mirror, "the sum must be there to be handed on");
    return life.mirrors;
  }

  void require_size(int action, int64_t ranks) const {
    if (ranks != schedule_.world())
      role_.refuse(action, text("sums over ", ranks, " ranks; legal: all ",
                                schedule_.world(), " that compute the batch"));
  }

  // Shards are summed over their copies, once, when all slices are in them.
  void check_replicas(const Life& life, const std::vector<int>& scatters) const {
    require_one(life.reduces, "Reduce");
    const int reduce = life.reduces[0];
    if (group_of(reduce).axes.meets(group_of(scatters[0]).axes))
      role_.refuse(reduce, "sums over ranks that hold different shards");
    require_size(reduce, int64_t{size_of(scatters[0])} * size_of(reduce));
    if (role_.at(reduce).slice != kNone)
      role_.refuse(reduce, "names a slice; legal: none, for all are in the shard");
    for (int i : scatters)
      role_.require_before(i, reduce, "all slices must be in the shard");
  }

  // Once for all slices, or once for each, in order.
  void check_cover(const Life& life, const std::vector<int>& reductions) const {
    if (role_.at(reductions[0]).slice == kNone) {
      if (reductions.size() > 1)
        role_.refuse(reductions[1],
                     text("reduces again what action ", reductions[0], " reduced"));
      for (int add : adds_of(life))
        role_.require_before(add, reductions[0], "it adds to the gradient");
      return;
    }
    for (size_t s = 0; s < reductions.size(); ++s) {
      if (role_.at(reductions[s]).slice != static_cast<int>(s))
        role_.refuse(reductions[s], text("is out of order; legal here: slice ", s));
      if (life.last_add[s] != kNone)
        role_.require_before(life.last_add[s], reductions[s],
                             "it adds to the gradient");
    }
    if (static_cast<int>(reductions.size()) != facts_.rounds)
      role_.refuse(reductions.back(), text("is the last of its bucket; legal: one for "
                                           "each of ",
                                           facts_.rounds, " slices"));
  }

  void check_update(int bucket, const Life& life, const std::vector<int>& ready) const {
    const int update = life.updates[0];
    for (int add : adds_of(life))
      if (add > update)
        role_.refuse(update, text("comes before action ", add, ", which adds to it"));
    const bool moved = !life.offloads.empty() || !life.fetches.empty();
    if (moved) {
      require_one(life.offloads, text("Offload of bucket ", bucket));
      require_one(life.fetches, text("Fetch of bucket ", bucket));
      role_.require_before(life.offloads[0], update,
                           "the gradient must be on the host");
      role_.require_before(update, life.fetches[0], "what was updated is fetched");
      if (!facts_.sharded[bucket] && life.gather != kNone)
        role_.require_before(life.fetches[0], life.gather,
                             "what was fetched is gathered");
    }
    for (int i : ready)
      role_.require_before(i, moved ? life.offloads[0] : update,
                           "the gradient must be summed");
  }

  const Schedule& schedule_;
  const RoleView& role_;
  const StepFacts& facts_;
  bool elastic_;
  bool mirrors_;  // the role has some, or its Commit needs them
  std::vector<Life> lives_;
};

}  // namespace

void check_gradients(const Schedule& schedule, const RoleView& role,
                     const StepFacts& facts, const CheckOptions& options) {
  Gradients(schedule, role, facts, options.elastic || schedule.elastic).check();
}

}  // namespace cohort
