// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/step_command.h"
#include "cohort/core/json.h"

namespace cohort::cli {

// What each rank of a role holds at most, and exchanges in a step: a row per role, from
// the first stage of a pipeline to the last.
std::string format_roles(const StepView& view);
RawJson roles_json(const StepView& view);

}  // namespace cohort::cli
