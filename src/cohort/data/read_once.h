// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/tensor.h"

namespace cohort {

// Collective over `node`: rank 0 calls `read`, and every rank returns the tensors it
// made (at most 8 dimensions each, of a dtype the communicator carries). A null node,
// or one of size 1, only reads.
//
// If `read` throws, every rank throws a DataError with its message, none waits for data
// that will not come.
std::vector<Tensor> read_once_per_node(
    Communicator* node, const std::function<std::vector<Tensor>()>& read);

}  // namespace cohort
