// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "cohort/comm/world.h"

namespace cohort::cli {

// ConfigError, in the name of that command, where nothing can run on a GPU. Only a rank
// asks: CUDA does not survive a fork.
void require_cuda(std::string_view command);

// Ranks of a node take its GPUs in turn.
int gpu_of(const World& world);

}  // namespace cohort::cli
