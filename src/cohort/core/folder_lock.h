// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "cohort/core/unique_fd.h"

namespace cohort {

// A folder that one run writes to, and no other.
//
// The lock is an flock() on the file run.lock there, which has the holder's pid and
// host and stays. It belongs to this process and to those that it forks from then on:
// it is gone when the last of them has ended, in whatever way.
//
// Failure: ConfigError that names the folder and the holder, at once while the holder
// lives. If only processes that it forked are left, which have nothing to live for, it
// waits for their end. A file system without locks gives none.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder,
                      std::chrono::milliseconds patience = std::chrono::seconds(30));

 private:
  UniqueFd file_;
};

}  // namespace cohort
