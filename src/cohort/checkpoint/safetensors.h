// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cohort/tensor.h"

namespace cohort {

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
};

// Files in the safetensors format (docs/formats/safetensors.md), which PyTorch users
// read with `safetensors.torch.load_file`. dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U8
// BOOL.
//
// Failure: CheckpointError that names the file and, where there is one, the tensor,
// what was expected and what was found.

// Writes beside `path`, syncs and renames: a reader finds the old file or the new one,
// whole. Tensors may lie on any device and have any strides. Refuses two tensors of
// one name, a name that is not UTF-8, and a dtype the format does not have.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// Reads all of it into new CPU tensors. Nothing in the file is trusted: lengths,
// offsets, shapes and names are checked before memory is asked for, and more than
// memory can hold is not asked for.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace cohort
