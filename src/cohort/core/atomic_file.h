// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "cohort/core/error.h"

namespace cohort {

// A file that is written bit by bit and replaced at one instant: a reader of `path`
// before finish() finds the old bytes, after it the new ones, whole. It has the
// promises of write_file_atomically() (core/file.h); without finish() nothing is left
// behind.
//
// Failure: the error class of `kind`, with the path and the system's own words.
// Thread safety: none.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& path, ErrorKind kind);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  // Syncs, names the file, and syncs the folder. Once, after the last write.
  void finish();

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace cohort
