// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "cohort/checkpoint/disk.h"
#include "cohort/core/fault_point.h"

namespace cohort {

// Passes everything on to `disk`, by way of fault points of `rank`, which may become
// another: "disk.write"
// before bytes are written (flip: another bit; drop: the disk is full), "disk.sync"
// before a file or a folder is synced, "disk.name" before a name is made, changed or
// removed. Borrows `faults` and `rank`. Thread safety: none.
std::unique_ptr<Disk> with_faults(std::unique_ptr<Disk> disk, FaultPlan& faults,
                                  const std::atomic<int>& rank);

}  // namespace cohort
