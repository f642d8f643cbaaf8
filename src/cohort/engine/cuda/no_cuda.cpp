// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort {

std::string why_no_cuda() { return "no CUDA in this build"; }

std::unique_ptr<CudaLane> make_cuda_lane() {
  throw ConfigError(text("[engine] ", why_no_cuda(),
                         "; a build against a LibTorch with libtorch_cuda has it"));
}

}  // namespace cohort
