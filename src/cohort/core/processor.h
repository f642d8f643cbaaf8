// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cohort {

// Says to the BLAS of LibTorch on 64-bit Arm (NVPL) which processor this is, where it
// cannot find out: on a virtual Neoverse V1 without a description of its caches its
// first product never ends. Sets an environment variable that LibTorch reads before its
// first kernel, unless the user has set it. To be called while the process has one
// thread.
void describe_processor();

// Lets LibTorch's vector functions (MKL's, on x86-64) choose their code for this
// processor while the process has one thread. They choose at their first call, and
// write the choice in two steps: a thread that comes in between computes with other
// code, whose last bits differ (docs/decisions/0018).
void settle_vector_math();

// The value for that variable; empty where LibTorch needs no help. `cpuinfo` is the
// text of /proc/cpuinfo.
std::string blas_processor(std::string_view cpuinfo);

}  // namespace cohort
