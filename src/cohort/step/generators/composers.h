// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/list_writer.h"

namespace cohort {

// Each writes the step of one role, in the order of its turns (turns.h): when
// parameters are gathered, gradients summed and weights updated. generator.cpp has the
// table that picks.
void write_whole_parameters(ListWriter& list);    // shard levels 0, 1 and 2
void write_sharded_parameters(ListWriter& list);  // shard level 3
void write_forward_only(ListWriter& list);

}  // namespace cohort
