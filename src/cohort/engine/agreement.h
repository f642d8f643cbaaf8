// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"

namespace cohort {

// Collective: one number of each rank, by rank.
std::vector<uint64_t> gather_numbers(Communicator& comm, uint64_t mine);

// Collective. Throws ConfigError on every rank unless all pass the same `hash`; the
// message names `what` and the ranks that differ from rank 0.
void require_equal(Communicator& comm, uint64_t hash, std::string_view what);

// One number for the names, shapes and dtypes of tensors.
uint64_t form_of(std::span<const NamedTensor> tensors);

// Collective. Throws ConfigError on every rank unless all have blocks of the same names
// with the same parameters (names, shapes of the whole, which are trained); the
// message names a rank that differs from rank 0, and its first block that does.
void require_equal_blocks(Communicator& comm, const Chain& chain);

// Collective: the values of rank `root`, in memory of any device. What has them already
// does not count as changed.
void take_values(Communicator& comm, const Tensor& tensor, int root);

}  // namespace cohort
