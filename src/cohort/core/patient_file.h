// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "cohort/core/unique_fd.h"

namespace cohort {

// What the files of a run could not be given because the disk is full, and how
// that is told. It outlives the files. Thread safety: none.
class Backlog {
 public:
  // One line when the first file has no room, one when the last has it again, and one
  // when the first record is lost.
  using Tell = std::function<void(const std::string& line)>;
  explicit Backlog(Tell tell, int64_t limit_bytes = 16 << 20)
      : tell_(std::move(tell)), limit_bytes_(limit_bytes) {}

  int64_t limit_bytes() const { return limit_bytes_; }  // for each file
  // What is not on disk now; empty: nothing.
  std::string trouble() const;

  // For a file that could not even be made: `why`; and that it is there now.
  void miss(const std::string& path, const std::string& why);
  void found(const std::string& path) { end(path); }

 private:
  friend class PatientFile;
  void begin(const std::string& path, int code);
  void end(const std::string& path);
  void lose(const std::string& path);

  Tell tell_;
  int64_t limit_bytes_;
  std::set<std::string> waiting_;  // files
  std::string cause_;              // in the system's words
  int64_t lost_ = 0;               // records
};

// A file that grows and waits for room: what a full disk does not take is kept in
// memory and written, in order, by a later call.
//
// Failure: DataError for anything but a full disk; without a backlog, for that too.
// What was to be written is kept even then. Thread safety: none.
class PatientFile {
 public:
  PatientFile() = default;
  // A descriptor that appends, of the file at `path`.
  PatientFile(UniqueFd file, std::string path, Backlog* backlog);
  PatientFile(PatientFile&&) noexcept = default;
  PatientFile& operator=(PatientFile&&) noexcept = default;

  void append(std::string_view bytes);
  // False: so much is kept that the caller should leave out its next record, which is
  // then counted as lost.
  bool has_room();
  // Gives up what is kept.
  void forget() { kept_.clear(); }

  int fd() const { return file_.get(); }

 private:
  void write_kept();

  UniqueFd file_;
  std::string path_;
  Backlog* backlog_ = nullptr;
  std::string kept_;
};

// Whether a write failed for want of room, which there may be later.
bool is_full_disk(int code);

}  // namespace cohort
