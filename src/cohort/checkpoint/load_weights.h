// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "cohort/block.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {

// Sets parameters and buffers of a chain to those of a safetensors file, by name: what
// --save-final wrote, or `safetensors.torch.save_file(model.state_dict(), ...)` of a
// PyTorch model with the same names. A folder of Hugging Face, in one file or several,
// or a checkpoint will do, too. Names may also be those of files on the Hugging Face
// Hub (weight_names.h). Any floating dtype is cast to the chain's.
//
// Call it before the engine takes over the chain's tensors. Failure: CheckpointError,
// before anything is changed, that names the first tensors that are missing, extra or
// of another shape, with the nearest names.
void load_weights(const std::string& path, const Chain& chain);

// The same CheckpointError, of headers alone: no data is read, and no kernel runs.
// `model`: its whole tensors. Returns what is worth a note, in one line: tensors of the
// file that the model does without; empty if there is nothing.
std::string check_weights(const std::string& path, std::span<const TensorSpec> model);

}  // namespace cohort
