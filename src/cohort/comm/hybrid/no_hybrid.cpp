// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/hybrid/hybrid.h"
#include "cohort/core/error.h"

namespace cohort {

bool hybrid_is_available() { return false; }

std::unique_ptr<Communicator> make_hybrid(const World&, Store&, const ConnectOptions&) {
  throw ConfigError("[comm.hybrid] this backend is not in this release");
}

}  // namespace cohort
