// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/version.h"

namespace cohort {

std::string_view version() { return COHORT_VERSION; }

}  // namespace cohort
