// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/atomic_file.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// Puts tensors into the order in which a safetensors file has their data: wide elements
// first, so that every tensor is aligned to its elements though the format allows no
// gaps; then by name.
void sort_as_saved(std::vector<StateTensor>& tensors);

// Writes a safetensors file a bit at a time, for a rank that has not all of it at once:
// the bytes are those of write_safetensors(). The file appears at finish(), whole.
//
// Failure: CheckpointError that names the file and what is wrong; then the file is what
// it was before. Thread safety: none.
class SafetensorsWriter {
 public:
  // Takes them as whole and row-major. Refuses two of one name, a name that is not
  // UTF-8, and a dtype the format does not have.
  SafetensorsWriter(const std::string& path, std::vector<StateTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // The next bytes of the data: tensors as sort_as_saved() has them, row-major.
  void write(std::string_view bytes);
  // When all of it is written.
  void finish();

 private:
  std::string path_;
  AtomicFile file_;
  int64_t left_ = 0;  // bytes
};

}  // namespace cohort
