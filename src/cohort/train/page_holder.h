// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort {

// Memory that somebody holds, and the name it is held under.
struct HeldPages {
  std::string name;
  int fd = -1;  // the receiver's to close
};

// Holds descriptors of memory while ranks come and go: the agent, for a rank.
// Failure: CommError. Thread safety: none.
class PageHolder {
 public:
  virtual ~PageHolder() = default;
  PageHolder(const PageHolder&) = delete;
  PageHolder& operator=(const PageHolder&) = delete;

  // From now on; the one that had the name is let go. `fd` stays the caller's.
  virtual void hold(const std::string& name, int fd) = 0;
  // What all ranks gave, those that are gone too.
  virtual std::vector<HeldPages> held() = 0;

 protected:
  PageHolder() = default;
};

}  // namespace cohort
