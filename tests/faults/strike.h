// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "cohort/core/fault_point.h"
#include "faults/thread_run.h"

namespace cohort::threads {

// One fault: which pass of which point on which rank, and what happens there.
enum class FaultKind { kKill, kFreeze, kLose, kFlip, kFull, kSlow };
inline constexpr const char* kKindNames[] = {
    "killed", "frozen", "loses a message", "bit flips", "disk is full", "disk is slow"};

struct Strike {
  std::string point;
  int rank = 0;
  int64_t pass = 1;
  FaultKind kind = FaultKind::kKill;
  bool may_miss = false;  // how often a run comes here is a matter of moments
};

inline std::ostream& operator<<(std::ostream& out, const Strike& s) {
  return out << "rank " << s.rank << " at pass " << s.pass << " of " << s.point << ": "
             << kKindNames[static_cast<int>(s.kind)];
}

// What may happen at such a point.
inline std::vector<FaultKind> kinds_at(const std::string& point) {
  static const std::map<std::string, std::vector<FaultKind>> kinds = {
      {"engine.action",
       {FaultKind::kKill, FaultKind::kFreeze, FaultKind::kLose, FaultKind::kFlip}},
      {"engine.call", {FaultKind::kKill, FaultKind::kFreeze, FaultKind::kLose}},
      {"engine.vote", {FaultKind::kKill, FaultKind::kFreeze}},
      {"engine.moment", {FaultKind::kFlip}},
      {"engine.mirror", {FaultKind::kFlip}},
      {"engine.gradient", {FaultKind::kFlip}},
      {"comm.message", {FaultKind::kKill, FaultKind::kLose}},
      {"disk.write", {FaultKind::kKill, FaultKind::kFull, FaultKind::kFlip}},
      {"disk.sync", {FaultKind::kKill, FaultKind::kSlow}},
      {"disk.name", {FaultKind::kKill}}};
  if (point.starts_with("train.") || point.starts_with("backup."))
    return {FaultKind::kKill, FaultKind::kFreeze};
  const auto found = kinds.find(point);
  return found == kinds.end() ? std::vector<FaultKind>{} : found->second;
}

// What a run of threads is to be armed with for it; `run` is there when it strikes.
inline std::vector<Fault> faults_of(const Strike& strike, ThreadRun*& run) {
  Fault fault{.name = strike.point, .rank = strike.rank, .count = strike.pass};
  const int rank = strike.rank;
  switch (strike.kind) {
    case FaultKind::kFlip:
      fault.action = Fault::Action::kFlip;
      return {fault};
    case FaultKind::kFull:
      fault.action = Fault::Action::kDrop;
      return {fault};
    case FaultKind::kKill:
      fault.call = [&run, rank] { run->kill(rank); };
      break;
    case FaultKind::kFreeze:
      fault.call = [&run] { run->freeze(); };
      break;
    case FaultKind::kLose:
      if (strike.point == "comm.message") {  // this very message
        Fault drop = fault;
        drop.action = Fault::Action::kDrop;
        fault.action = Fault::Action::kCall;
        fault.call = [&run] { run->let_time_run(); };
        return {fault, drop};
      }
      fault.call = [&run, rank] { run->lose_message(rank); };
      break;
    case FaultKind::kSlow:
      fault.call = [&run] { run->slow_down(2 * ThreadRun::kTimeout); };
      break;
  }
  fault.action = Fault::Action::kCall;
  return {fault};
}

}  // namespace cohort::threads
