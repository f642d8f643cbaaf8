// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {

// What an armed fault point throws.
class InjectedFault : public Error {
 public:
  explicit InjectedFault(const std::string& m) : Error(ErrorKind::kBug, m) {}
};

// One fault: what happens at the `count`-th pass of a point.
struct Fault {
  enum class Action { kThrow, kKill, kFreeze, kSlow, kFlip, kDrop, kCall };

  std::string name;
  int rank = -1;       // -1: any
  int64_t index = -1;  // number of the action at this point; -1: any
  int64_t count = 1;   // which of the passes that match; later ones do nothing
  // kKill is SIGKILL, kFreeze SIGSTOP, to ourselves; kSlow waits for `delay`; kFlip
  // asks what passes to flip a bit of what it holds, kDrop to lose what it is about
  // to send or to write, as on a full disk.
  Action action = Action::kThrow;
  int64_t most = 0;  // strikes of all processes that note them in one file; 0: any
  std::chrono::milliseconds delay{0};
  std::function<void()> call = {};  // for kCall
};

// The faults of a run. Code that must survive them names its dangerous places:
//   faults.reach("engine.action", rank, index);
// which costs one load while nothing is armed. A plan is passed, never global, and
// reach() may be called from any thread.
class FaultPlan {
 public:
  FaultPlan() = default;
  // "NAME[INDEX]@RANK:COUNT=ACTION*MOST;...", where [INDEX], :COUNT and *MOST may be
  // missing, RANK may be *, and ACTION is throw, kill, freeze, flip, drop, or slow and
  // a number of milliseconds (slow250). ConfigError for anything else.
  explicit FaultPlan(std::string_view spec);
  // From COHORT_FAULT, for ranks that are real processes; none if it is not set. Each
  // fault that fires is a line of the file that COHORT_FAULT_LOG names; one with MOST
  // does nothing when the file has as many lines of it.
  static FaultPlan from_env();

  void arm(Fault fault);

  enum class Ask { kNothing, kFlip, kDrop };
  Ask reach(std::string_view name, int rank, int64_t index = -1) {
    if (is_armed()) [[unlikely]]
      return pass(name, rank, index);
    return Ask::kNothing;
  }

  // Whether anything may happen at some point.
  bool is_armed() const { return armed_.load(std::memory_order_acquire); }

  // Hears of every pass from now on, before its faults fire, on the thread that passes:
  // a test that strikes at each of them finds them so.
  using Observer = std::function<void(std::string_view name, int rank, int64_t index)>;
  void observe(Observer observer);

  // Faults that have not fired: a test that leaves one has tested nothing.
  int64_t pending() const;

 private:
  Ask pass(std::string_view name, int rank, int64_t index);

  std::atomic<bool> armed_{false};
  mutable std::mutex mutex_;
  std::vector<Fault> faults_;  // count: passes still to go; 0: fired
  Observer observer_;
};

}  // namespace cohort
