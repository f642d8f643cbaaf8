// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cohort/step/csv_first_version.h"
#include "cohort/step/schedule_csv.h"

// What only files have that were written when the host updated the state it held: an
// Offload brought it the gradient, a Fetch took the new weights back. Now the device
// updates that state in place.
namespace cohort::csv {

bool is_old_copy(std::string_view kind);

struct OldCopy {
  size_t role = 0;
  size_t action = 0;
  bool fetches = false;
};

// Takes these actions, which are in the order of the file, out of it. Actions that
// waited for one wait for what it waited for; its Update makes what a Fetch made.
void drop_copies(ScheduleFile& file, std::vector<std::vector<OldMemory>>& memory,
                 const std::vector<OldCopy>& copies);

}  // namespace cohort::csv
