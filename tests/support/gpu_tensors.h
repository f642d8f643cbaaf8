// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/communicator.h"

namespace cohort::test {

// Lets a test that knows only tensors of the CPU be one of the GPU: each call goes to
// `inner` with copies on the GPU, of the same layout and sharing memory alike, and
// wait() brings back what was written. Tensors that have no such copy go as they are.
std::unique_ptr<Communicator> with_gpu_tensors(std::unique_ptr<Communicator> inner);

}  // namespace cohort::test
