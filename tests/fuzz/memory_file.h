// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "cohort/core/unique_fd.h"

namespace cohort::fuzz {

// A file of these bytes that touches no disk, for readers that want a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes)
      : fd_(::memfd_create("cohort-fuzz", MFD_CLOEXEC)) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n <= 0) throw std::runtime_error("no memory for a file");
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }
  int release() { return fd_.release(); }

 private:
  UniqueFd fd_;
};

}  // namespace cohort::fuzz
