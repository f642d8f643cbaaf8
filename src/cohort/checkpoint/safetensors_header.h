// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/tensor_spec.h"

namespace cohort {

// The header of a safetensors file: private to this room.

// Bytes [begin, end) of the data part.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

constexpr int64_t kMostHeaderBytes = 100'000'000;  // the limit that all readers have

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // sorted by name
  std::map<std::string, std::string> metadata;
};

// The JSON text, padded with spaces to a multiple of 8 bytes. `path` is for messages.
std::string format_header(const SafetensorsHeader& header, const std::string& path);

// Parses and checks a header whose data part has `data_size` bytes: when it returns,
// the entries cover that part without gap or overlap. Throws CheckpointError.
SafetensorsHeader parse_header(std::string_view json, int64_t data_size,
                               const std::string& path);

}  // namespace cohort
