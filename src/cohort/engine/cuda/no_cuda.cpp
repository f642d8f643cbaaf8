// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/pinned_memory.h"
#include "cohort/engine/state_kernels.h"

namespace cohort {

std::string why_no_cuda() { return "no CUDA in this build"; }
bool cuda_is_built() { return false; }
int cuda_device_count() { return 0; }
int64_t cuda_free_memory(int) { return 0; }
std::string cuda_device_id(int) { return ""; }
std::string cuda_device_name(int) { return ""; }

namespace {

[[noreturn]] void refuse_cuda() {
  throw ConfigError(text("[engine] ", why_no_cuda(),
                         "; a build against a LibTorch with libtorch_cuda has it"));
}

}  // namespace

std::unique_ptr<CudaLane> make_cuda_lane(int) { refuse_cuda(); }
std::unique_ptr<StateKernels> make_cuda_kernels(int) { refuse_cuda(); }
Tensor pinned_zeros(int64_t, at::ScalarType, at::Device) { refuse_cuda(); }

}  // namespace cohort
