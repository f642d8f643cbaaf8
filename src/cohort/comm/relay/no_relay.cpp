// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gpu_relay.h"
#include "cohort/core/error.h"

namespace cohort {

std::unique_ptr<Communicator> with_gpu_relay(std::unique_ptr<Communicator> host, int,
                                             const ConnectOptions&) {
  if (host->takes_cuda() || host->size() == 1) return host;
  throw ConfigError(
      text("[comm.", host->backend(),
           "] ranks on GPUs: this build has no CUDA; legal: --device cpu"));
}

}  // namespace cohort
