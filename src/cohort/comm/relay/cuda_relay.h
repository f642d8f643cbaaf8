// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/relay/relay_driver.h"

namespace cohort::relay_backend {

// Streams of that GPU: copies to memory that is pinned, host functions, and waits for a
// word. ConfigError where the GPU or its driver does not have these.
std::shared_ptr<RelayDriver> make_cuda_relay(int gpu);

}  // namespace cohort::relay_backend
