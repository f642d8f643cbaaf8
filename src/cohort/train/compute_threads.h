// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// Threads that the computation of a rank gains from: one for each part of the work that
// is worth waking a thread for, at least 1 and at most `most`. A small model on all
// cores of a large machine spends its time meeting at the end of each operation.
//
// `slice_flops`: what the forward of one slice computes (count_blocks), 0 if unknown:
// then it is `most`. Equal arguments give equal numbers, because results depend on
// them.
int compute_threads(double slice_flops, int most);

// LibTorch's operations in the calling thread are computed by it alone from here on. A
// thread beside the one that computes would else start a pool of threads of its own,
// which compete with the first one's.
void keep_to_one_thread();

}  // namespace cohort
