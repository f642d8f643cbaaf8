// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/comm/world.h"

namespace cohort {

// Ranks with a GPU each, over NCCL; tensors of the CPU go the way `auto` chooses.
//
// nccl_fault() says why it cannot be used, as the end of a sentence; empty: it can.
// Neither starts CUDA, which the first call with tensors of a GPU does.
std::string nccl_fault();
std::unique_ptr<Communicator> make_nccl(const World& world, Store& store,
                                        const ConnectOptions& options);

}  // namespace cohort
