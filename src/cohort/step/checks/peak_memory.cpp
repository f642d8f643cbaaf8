// SPDX-License-Identifier: Apache-2.0
// Foretells the most that a rank holds at once: adds up the plan (memory_plan.h),
// buffers, which a rank keeps, and values with memory of their own.
#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

RolePeak memory_of_buffers(const Schedule& schedule, const Role& role) {
  RolePeak peak;
  MemoryParts& parts = peak.parts;
  const auto kept = kept_buffers(schedule, role);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    const Buffer& buffer = schedule.buffers[i];
    if (buffer.memory == Buffer::Memory::kDevice) peak.on_device += buffer.bytes();
    if (buffer.holds == Buffer::Holds::kSlot)
      parts.gradients += buffer.bytes();
    else if (buffer.holds == Buffer::Holds::kGathered)
      parts.parameters += buffer.bytes();
    else
      parts.state += buffer.bytes();
  }
  return peak;
}

// Walks the list in its order. What an action gives back is free when another has
// waited for it, directly or not.
class Walk {
 public:
  explicit Walk(const RoleView& role)
      : role_(role),
        memory_(value_memory(role.role())),
        waiting_(role.lanes()),
        next_(role.lanes(), 0) {}

  RolePeak find(RolePeak peak) {
    int64_t live = 0, most = -1;
    for (int i = 0; i < role_.size(); ++i) {
      live += memory_.takes[i] - freed_before(i);
      if (live + role_.at(i).scratch > most) {
        most = live + role_.at(i).scratch;
        peak.action = i;
        peak.parts.activations = live;
        peak.parts.scratch = role_.at(i).scratch;
      }
      if (memory_.frees[i] > 0) waiting_[role_.at(i).lane].push_back(i);
    }
    return peak;
  }

 private:
  int64_t freed_before(int i) {
    int64_t freed = 0;
    for (int l = 0; l < role_.lanes(); ++l) {
      auto& next = next_[l];
      while (next < waiting_[l].size() && role_.before(waiting_[l][next], i))
        freed += memory_.frees[waiting_[l][next++]];
    }
    return freed;
  }

  const RoleView& role_;
  ValueMemory memory_;
  std::vector<std::vector<int>> waiting_;  // by lane: actions that free
  std::vector<size_t> next_;               // by lane: the first that has not yet
};

}  // namespace

RolePeak find_peak(const Schedule& schedule, const RoleView& role) {
  RolePeak peak = Walk(role).find(memory_of_buffers(schedule, role.role()));
  if (schedule.computes_in == Buffer::Memory::kDevice)
    peak.on_device += peak.parts.activations + peak.parts.scratch;
  return peak;
}

}  // namespace cohort
