// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "cohort/core/unique_fd.h"

namespace cohort {

// The records of a zip file, as torch.save writes one: stored, not packed, also beyond
// 4 GB. Private to this room.
//
// Opening reads the directory alone. Nothing in it is trusted: every record lies inside
// the file, and all together are no larger than it. Checksums are not looked at, as
// PyTorch does not either.
//
// Failure: CheckpointError without the name of the file. Thread safety: reads may run
// side by side.
class ZipFile {
 public:
  explicit ZipFile(const std::string& path);

  // The folder that all records lie in: that of the first data.pkl, with its '/'.
  const std::string& folder() const { return folder_; }

  bool has(const std::string& name) const { return records_.count(folder_ + name) > 0; }
  // Bytes of a record; there must be one.
  int64_t size(const std::string& name) const;
  void read(const std::string& name, char* out) const;
  // All of a record that has at most `most` bytes.
  std::string read(const std::string& name, int64_t most) const;

 private:
  struct Record {
    int64_t header = 0;  // where its own begins, in front of its bytes
    int64_t bytes = 0;
  };
  struct Directory {
    int64_t begin = 0;
    int64_t bytes = 0;
    int64_t records = 0;
  };
  Directory find_directory() const;
  Directory wide_directory(int64_t end) const;
  void read_directory(const Directory& directory);
  std::string_view add_record(std::string_view rest);
  void read_at(int64_t offset, void* out, int64_t count) const;
  const Record& record(const std::string& name) const;

  UniqueFd fd_;
  int64_t bytes_ = 0;  // size of the file
  int64_t total_ = 0;  // size of all records so far
  std::string folder_;
  std::map<std::string, Record> records_;
};

}  // namespace cohort
