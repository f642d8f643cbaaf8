// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/buffers.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace cohort {
namespace {

bool is_gradient(const Value& value) {
  return value.what == What::kLeaf || value.what == What::kPartial;
}

// By bucket, the last action of a slice that adds to its gradient.
std::map<int, size_t> last_adders(const std::vector<Action>& actions, int slice) {
  std::map<int, size_t> last;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].slice == slice && actions[i].block != kNone)
      for (const auto& access : actions[i].writes)
        if (is_gradient(access.value)) last[access.value.of] = i;
  return last;
}

// By bucket: gradients are born at several places, and a slot is the same at all.
std::vector<bool> shared_buckets(const Schedule& schedule) {
  std::vector<std::set<int>> places(schedule.buckets.size());
  for (const auto& role : schedule.roles)
    for (const auto& [bucket, action] : last_adders(role.actions, 0))
      places[bucket].insert(schedule.mesh.coordinate(role.ranks[0], Axis::kPipe));
  std::vector<bool> shared;
  for (const auto& those : places) shared.push_back(those.size() > 1);
  return shared;
}

// The slots of the buckets of one place, as the first slice of its list needs them; all
// slices are alike. Those that are `shared` have the first `slots`, and keep them.
// Returns how many take memory: none where each gradient has its own.
int assign_slots(Schedule& schedule, const std::vector<Action>& actions, int distance,
                 const std::vector<bool>& shared, int slots) {
  const auto last = last_adders(actions, 0);
  std::vector<bool> has_slot = shared;
  std::deque<int> retired;
  bool turns = false;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].slice != 0 || actions[i].block == kNone) continue;
    std::vector<int> ended;
    for (const auto& access : actions[i].writes) {
      if (!is_gradient(access.value)) continue;
      turns |= access.value.what == What::kLeaf;
      const int bucket = access.value.of;
      int& slot = schedule.buckets[bucket].slot;
      if (!has_slot[bucket]) {
        has_slot[bucket] = true;
        const bool again = static_cast<int>(retired.size()) >= distance;
        slot = again ? retired.front() : slots++;
        if (again) retired.pop_front();
      }
      if (last.at(bucket) == i && !shared[bucket]) ended.push_back(slot);
    }
    retired.insert(retired.end(), ended.begin(), ended.end());
  }
  return turns ? slots : 0;
}

// The most of any place.
int assign_slots(Schedule& schedule, int distance) {
  const std::vector<bool> shared = shared_buckets(schedule);
  int kept = 0;
  for (size_t i = 0; i < shared.size(); ++i)
    if (shared[i]) schedule.buckets[i].slot = kept++;
  std::set<int> done;  // places
  int most = 0;
  for (const auto& role : schedule.roles)
    if (done.insert(schedule.mesh.coordinate(role.ranks[0], Axis::kPipe)).second)
      most =
          std::max(most, assign_slots(schedule, role.actions, distance, shared, kept));
  return most;
}

// The buffers of one list.
class BufferAssigner {
 public:
  BufferAssigner(const Schedule& schedule, int slots)
      : schedule_(schedule), next_(slots) {}

  void assign(Action& action) {
    if (action.kind == ActionKind::kGather && schedule_.shard == 3)
      take(action.buckets[0]);
    for (auto* accesses : {&action.reads, &action.writes})
      for (auto& access : *accesses) access.buffer = buffer_of(access.value);
    if (action.kind == ActionKind::kFree) give_back(action.buckets[0]);
  }
  int used() const { return next_; }

 private:
  int buffer_of(const Value& value) const {
    if (value.what == What::kLeaf) return schedule_.buckets[value.of].slot;
    const auto held = held_.find(value.of);
    return value.what == What::kWhole && held != held_.end() ? held->second : kNone;
  }

  // Shards that are seen as one memory need no other.
  void take(int bucket) {
    if (schedule_.buckets[bucket].joined) return;
    if (free_.empty()) free_.push_back(next_++);
    held_[bucket] = free_.front();
    free_.pop_front();
  }

  void give_back(int bucket) {
    const auto held = held_.find(bucket);
    if (held == held_.end()) return;
    free_.push_back(held->second);
    held_.erase(held);
  }

  const Schedule& schedule_;
  int next_;
  std::map<int, int> held_;  // by bucket: the buffer of its whole parameters
  std::deque<int> free_;     // such buffers, longest free first
};

}  // namespace

// Any buffer may serve any bucket, so each fits the largest.
void assign_buffers(Schedule& schedule, int distance) {
  const int slots = assign_slots(schedule, distance);
  int used = slots;
  for (auto& role : schedule.roles) {
    BufferAssigner assigner(schedule, slots);
    for (auto& action : role.actions) assigner.assign(action);
    used = std::max(used, assigner.used());
  }
  int64_t trained = 0, any = 0;
  for (const auto& bucket : schedule.buckets) {
    any = std::max(any, bucket.numel);
    if (bucket.trained) trained = std::max(trained, bucket.numel);
  }
  for (int i = 0; i < used; ++i)
    schedule.buffers.push_back(
        {.holds = i < slots ? Buffer::Holds::kSlot : Buffer::Holds::kGathered,
         .dtype = schedule.precision.compute,
         .numel = i < slots ? trained : any});
}

}  // namespace cohort
