// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort {

// Memory that somebody keeps, and the name he keeps it under.
struct KeptPages {
  std::string name;
  int fd = -1;  // the receiver's to close
};

// Who keeps descriptors of memory while ranks come and go: the agent, for a rank.
// Failure: CommError. Thread safety: none.
class PageKeeper {
 public:
  virtual ~PageKeeper() = default;
  PageKeeper(const PageKeeper&) = delete;
  PageKeeper& operator=(const PageKeeper&) = delete;

  // From now on; the one that had the name is let go. `fd` stays the caller's.
  virtual void keep(const std::string& name, int fd) = 0;
  // What all ranks gave, those that are gone too.
  virtual std::vector<KeptPages> kept() = 0;

 protected:
  PageKeeper() = default;
};

}  // namespace cohort
