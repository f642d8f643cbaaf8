// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/config/keys.h"

namespace cohort {

// The keys of every recipe, as docs and `cohort train --help` list them. A recipe
// adds its own and sets its own defaults as a layer.
Keys common_keys();

}  // namespace cohort
