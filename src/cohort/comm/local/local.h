// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

class Clock;
class FaultPlan;

struct LocalOptions {
  std::chrono::milliseconds timeout{60'000};  // a rank later than this is lost
  int generation = 0;
  // All deadlines use it, and it must outlive the world. Null: the machine's clock.
  Clock* clock = nullptr;
  // Reached as "comm.message", with the rank in the world and the number of the call,
  // before a rank shows its peers that it has come to a collective or a transfer. One
  // that drops it loses that message.
  FaultPlan* faults = nullptr;
};

// The ranks of a world inside this process, one communicator each; every one is to
// be used by a thread of its own. make_local(1, timeout)[0] is a world of one.
std::vector<std::unique_ptr<Communicator>> make_local(int size,
                                                      std::chrono::milliseconds timeout,
                                                      int generation = 0);
std::vector<std::unique_ptr<Communicator>> make_local(int size,
                                                      const LocalOptions& options);

}  // namespace cohort
