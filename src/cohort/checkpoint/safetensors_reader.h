// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/core/unique_fd.h"
#include "cohort/tensor.h"

namespace cohort {

// An open safetensors file: its header is read and checked, its tensors are read when
// they are asked for. Private to this room.
//
// Failure: CheckpointError that names the file. Thread safety: reads may run side by
// side.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  // Null if there is none of that name.
  const TensorEntry* find(const std::string& name) const;
  // Bytes of all tensors.
  int64_t data_bytes() const { return bytes_ - data_; }

  // A new CPU tensor. Refused if memory cannot hold it.
  Tensor read(const TensorEntry& entry) const;

 private:
  int64_t read_header_size() const;
  void read_at(int64_t offset, void* out, int64_t count) const;
  void check_bools(const Tensor& tensor, const TensorEntry& entry) const;

  std::string path_;
  UniqueFd fd_;
  int64_t bytes_ = 0;  // size of the file
  int64_t data_ = 0;   // where the tensors begin
  SafetensorsHeader header_;
};

}  // namespace cohort
