// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// A Gather that gives back itself what it took had a copy to send.
int64_t& taken_for(MemoryParts& parts, const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
      return parts.activations;
    case ActionKind::kGather:
      return action.frees > 0 ? parts.scratch : parts.parameters;
    default:
      return parts.gradients;
  }
}

int64_t& freed_of(MemoryParts& parts, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
    case ActionKind::kBackward:
      return parts.activations;
    case ActionKind::kFree:
      return parts.parameters;
    case ActionKind::kGather:
      return parts.scratch;
    default:
      return parts.gradients;
  }
}

bool negative(const MemoryParts& parts) {
  return parts.activations < 0 || parts.parameters < 0 || parts.gradients < 0 ||
         parts.scratch < 0;
}

// Walks the list in its order. What an action frees is free when another has waited
// for it, directly or not. Memory of gathered parameters, and of gradients that take
// turns in it, is kept when it is free, for the next ones: a rank always holds the most
// that it needed at once.
class Walk {
 public:
  explicit Walk(const RoleView& role)
      : role_(role), waiting_(role.lanes()), next_(role.lanes(), 0) {
    live_.state = role.at(role.size() - 1).takes;
  }

  RolePeak find() {
    RolePeak peak;
    peak.parts.state = -1;
    MemoryParts kept;
    for (int i = 0; i < role_.size(); ++i) {
      const Action& action = role_.at(i);
      release(i);
      if (action.kind != ActionKind::kCommit) taken_for(live_, action) += action.takes;
      kept.parameters = std::max(kept.parameters, live_.parameters);
      kept.gradients = std::max(kept.gradients, live_.gradients);
      MemoryParts now = live_;
      now.parameters = now.gradients = 0;
      now.scratch += action.scratch;
      if (now.total() > peak.parts.total()) peak = {i, now};
      if (action.frees > 0) waiting_[action.lane].push_back(i);
    }
    check_balance();
    peak.parts.parameters = kept.parameters;
    peak.parts.gradients = kept.gradients;
    return peak;
  }

 private:
  void release(int i) {
    for (int l = 0; l < role_.lanes(); ++l) {
      auto& next = next_[l];
      while (next < waiting_[l].size() && role_.before(waiting_[l][next], i)) {
        const Action& freed = role_.at(waiting_[l][next++]);
        freed_of(live_, freed.kind) -= freed.frees;
        if (negative(live_))
          role_.refuse(waiting_[l][next - 1], text("gives back ", freed.frees,
                                                   " bytes; legal: what was taken"));
      }
    }
  }

  // A step leaves what it found. Commit has waited for everything.
  void check_balance() const {
    const int64_t left =
        live_.activations + live_.parameters + live_.gradients + live_.scratch;
    if (left != 0)
      role_.refuse(role_.size() - 1,
                   text(left, " bytes were taken and not given back; legal: 0"));
  }

  const RoleView& role_;
  MemoryParts live_;
  std::vector<std::vector<int>> waiting_;  // by lane: actions that free
  std::vector<size_t> next_;               // by lane: the first that has not yet
};

}  // namespace

RolePeak find_peak(const RoleView& role) { return Walk(role).find(); }

}  // namespace cohort
