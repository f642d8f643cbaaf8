// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl.h"
#include "cohort/core/error.h"

namespace cohort {

std::string nccl_fault() { return "needs CUDA, which this build does not have"; }

std::unique_ptr<Communicator> make_nccl(const World&, Store&, const ConnectOptions&) {
  throw ConfigError(text("[comm] backend 'nccl' ", nccl_fault()));
}

}  // namespace cohort
