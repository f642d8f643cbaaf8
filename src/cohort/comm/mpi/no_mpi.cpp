// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/mpi/mpi.h"
#include "cohort/core/error.h"

namespace cohort {

bool mpi_is_available() { return false; }

std::unique_ptr<Communicator> make_mpi(const World&, Store&, const ConnectOptions&) {
  throw ConfigError("[comm.mpi] this backend is not in this release");
}

}  // namespace cohort
