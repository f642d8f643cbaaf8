// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl.h"
#include "cohort/core/error.h"

namespace cohort {

bool nccl_is_available() { return false; }

std::unique_ptr<Communicator> make_nccl(const World&, Store&, const ConnectOptions&) {
  throw ConfigError("[comm.nccl] this backend is not in this release");
}

}  // namespace cohort
