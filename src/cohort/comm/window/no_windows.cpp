// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gpu_windows.h"

namespace cohort {

WithGpuWindows with_gpu_windows(std::unique_ptr<Communicator> host, int,
                                const ConnectOptions&) {
  return {std::move(host), "needs CUDA, which this build does not have"};
}

}  // namespace cohort
