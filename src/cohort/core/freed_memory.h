// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// From now on this process keeps memory that it frees, and takes it again without
// asking the system. A training step frees and takes the same blocks every time; an
// allocator that gives their pages back pays for it with a fault for each page of the
// next step, and with a time that is not linear in the batch (docs/decisions/0017).
//
// For a rank, at its beginning, before it has threads. The process then stays as large
// as it ever was.
void keep_freed_memory();

}  // namespace cohort
