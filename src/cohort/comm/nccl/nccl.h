// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/world.h"

namespace cohort {

// Ranks with a GPU each, over NCCL.
bool nccl_is_available();
std::unique_ptr<Communicator> make_nccl(const World& world, Store& store,
                                        const ConnectOptions& options);

}  // namespace cohort
