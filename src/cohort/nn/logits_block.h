// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/block.h"

namespace cohort {

// A block that stands in the place of a language model's last one, for what draws
// tokens: it has the parameters of that, takes the field "places" (samples, places) of
// int64 instead of "target", and gives logits (samples, places, vocabulary), on every
// tensor-parallel rank all of them. For evaluations alone: nothing is differentiated.
//
// Borrows the chain's last block. BugError if that is no language model's.
std::unique_ptr<Block> make_logits_block(const Chain& chain, int64_t places = 1);

}  // namespace cohort
