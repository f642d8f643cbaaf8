// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/tensor.h"

namespace cohort {

// PyTorch's own files (.pt, .pth, .bin): a zip of a pickled dictionary of tensors and
// their bytes. What is written loads with torch.load(path, weights_only=True).
//
// Failure: CheckpointError that names the file.

// The tensors of a state_dict, by name; other values in it are passed over. `key` names
// the entry that holds it in a file of several, {"model": state_dict, ...}. Only
// dictionaries, lists, numbers, strings and tensors are understood: nothing in a file
// is executed.
std::vector<NamedTensor> read_torch_file(const std::string& path,
                                         const std::string& key = "");

// Replaces the file at one instant. Tensors keep their order; any device and strides.
void write_torch_file(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace cohort
