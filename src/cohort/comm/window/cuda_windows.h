// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/window/window_driver.h"

namespace cohort::window_backend {

// Windows in the memory of that GPU, shared between processes by CUDA IPC; words are
// given and taken by the memory operations of streams. ConfigError where the GPU or
// its driver does not have these.
std::shared_ptr<WindowDriver> make_cuda_windows(int gpu);

}  // namespace cohort::window_backend
