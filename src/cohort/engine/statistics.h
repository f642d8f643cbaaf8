// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"

namespace cohort {

// Collective. From the statistics of this rank's `slices` slices makes those of all
// slices of the global batch, in slice order: then running statistics are equal on
// all ranks, and do not depend on how many there are. `buffers` are the chain's.
std::vector<Statistic> gather_statistics(Communicator& comm,
                                         std::span<const NamedTensor> buffers,
                                         std::span<const Statistic> mine, int slices);

// Folds them into the running statistics, one after another. Part of Commit.
void apply_statistics(std::span<const Statistic> statistics);

}  // namespace cohort
