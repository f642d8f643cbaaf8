// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/world.h"

namespace cohort {

// Ranks under mpirun or srun, over an MPI library.
bool mpi_is_available();
std::unique_ptr<Communicator> make_mpi(const World& world, Store& store,
                                       const ConnectOptions& options);

}  // namespace cohort
