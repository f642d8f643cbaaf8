// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cohort {

// ConfigError where the LibTorch in this process is not of the release that the library
// was compiled with: its classes may have other members, and nothing would say so. To
// be called first where a program comes in.
void require_built_libtorch();

// What is wrong with a LibTorch whose number is `loaded` (TORCH_ABI_VERSION; 0: too old
// to have one), or empty. `file`: where it lies.
std::string libtorch_refusal(uint64_t loaded, const std::string& file);

}  // namespace cohort
