// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cohort/comm/communicator.h"

namespace cohort {

// The ranks of a world inside this process, one communicator each; every one is to
// be used by a thread of its own. make_local(1, timeout)[0] is a world of one.
std::vector<std::unique_ptr<Communicator>> make_local(int size,
                                                      std::chrono::milliseconds timeout,
                                                      int generation = 0);

}  // namespace cohort
