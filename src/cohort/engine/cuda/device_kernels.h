// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/engine/cuda/kernel_launcher.h"
#include "cohort/engine/state_kernels.h"

namespace cohort {

// The kernels that everything but updates needs.
KernelProgram sum_program();
// Those of one rule: update, and reduce for a rule with reductions.
KernelProgram update_program(const ShardUpdateOptions& options);

// StateKernels by launches of kernels. Knows nothing of CUDA: the launcher does.
std::unique_ptr<StateKernels> make_device_kernels(
    std::unique_ptr<KernelLauncher> launcher);

}  // namespace cohort
