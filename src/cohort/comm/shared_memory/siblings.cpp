// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/siblings.h"

#include <algorithm>

#include "cohort/comm/shared_memory/shared_group.h"

namespace cohort::shared_memory {

void Siblings::join(SharedGroup& group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(&group);
  if (groups_.size() > 1) alone_.store(false, std::memory_order_relaxed);
}

void Siblings::leave(SharedGroup& group) {
  std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

void Siblings::take_over(std::atomic<std::thread::id>& owner, std::thread::id me) {
  std::lock_guard lock(mutex_);
  owner.store(me, std::memory_order_relaxed);
}

bool Siblings::is_mine(const SharedGroup& group) {
  return group.owner() == std::this_thread::get_id();
}

}  // namespace cohort::shared_memory
