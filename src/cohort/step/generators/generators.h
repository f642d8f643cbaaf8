// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/list_writer.h"

namespace cohort {

// All blocks of a place, forward or backward, for the slices of one round.
struct Turn {
  int round;
  bool backward;
};
std::vector<Turn> turns_of(const ListWriter& list);

// Each writes the step of one role; generator.cpp has the table that picks.
void write_whole_parameters(ListWriter& list);    // shard levels 0, 1 and 2
void write_sharded_parameters(ListWriter& list);  // shard level 3
void write_forward_only(ListWriter& list);

}  // namespace cohort
