// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/core/error.h"

namespace cohort {

// No space is left, or the user's share of it is spent.
class DiskFull : public CheckpointError {
 public:
  explicit DiskFull(const std::string& m) : CheckpointError(m) {}
};

// All that a save does to a disk, so that a test can make any of it fail.
//
// Failure: CheckpointError with the path and the system's own words; DiskFull where
// space is the cause. Thread safety: none.
class Disk {
 public:
  using Path = std::filesystem::path;

  // A new file. Without finish() its bytes are nowhere for sure.
  class File {
   public:
    virtual ~File() = default;
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    virtual void write(std::string_view bytes) = 0;
    // Syncs and closes.
    virtual void finish() = 0;

   protected:
    File() = default;
  };

  virtual ~Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // The file must not exist yet.
  virtual std::unique_ptr<File> create(const Path& path) = 0;
  // And those above it; an existing one is fine.
  virtual void make_folder(const Path& path) = 0;
  // A second name for a file's bytes; one that is there already is fine.
  virtual void link(const Path& from, const Path& to) = 0;
  virtual void rename(const Path& from, const Path& to) = 0;
  // Two folders swap their names at one instant. False where the system cannot.
  [[nodiscard]] virtual bool exchange(const Path& a, const Path& b) = 0;
  // New names in a folder last from here on.
  virtual void sync_folder(const Path& path) = 0;
  // With all that is in it; nothing there is fine.
  virtual void remove(const Path& path) = 0;
  virtual int64_t free_bytes(const Path& path) = 0;

 protected:
  Disk() = default;
};

std::unique_ptr<Disk> real_disk();

}  // namespace cohort
