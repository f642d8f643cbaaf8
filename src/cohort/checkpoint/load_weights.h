// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/block.h"

namespace cohort {

// Sets parameters and buffers of a chain to those of a safetensors file, by name: what
// --save-final wrote, or `safetensors.torch.save_file(model.state_dict(), ...)` of a
// PyTorch model with the same names. Any floating dtype is cast to the chain's. Tensors
// `*.num_batches_tracked`, PyTorch's count of steps in a norm, are passed over.
//
// Call it before the engine takes over the chain's tensors. Failure: CheckpointError,
// before anything is changed, that names the first tensors that are missing, extra or
// of another shape, with the nearest names.
void load_weights(const std::string& path, const Chain& chain);

}  // namespace cohort
