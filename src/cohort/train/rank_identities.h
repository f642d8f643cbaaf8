// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/communicator.h"
#include "cohort/train/reporter.h"

namespace cohort {

// Collective: which processes the ranks are, at rank 0 and everywhere.
std::vector<RankIdentity> identities(Communicator& comm);

}  // namespace cohort
