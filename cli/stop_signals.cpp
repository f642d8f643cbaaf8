// SPDX-License-Identifier: Apache-2.0
#include "cli/stop_signals.h"

#include "cohort/launch/signals.h"

namespace cohort::cli {

void release_stop_signals() { process::release_requests(); }

}  // namespace cohort::cli
