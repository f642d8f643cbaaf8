// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/comm/shared_memory/control_block.h"

namespace cohort::shared_memory {

// Says that this rank touches memory of its peers. A rank that gives up waits for
// it before it lets its caller free that memory.
class Busy {
 public:
  explicit Busy(Status& status) : status_(status) { status_.busy.store(1); }
  ~Busy() { status_.busy.store(0); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Status& status_;
};

}  // namespace cohort::shared_memory
