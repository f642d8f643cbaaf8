// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/local_store.h"

#include "cohort/core/error.h"

namespace cohort {

void LocalStore::set(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string LocalStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
    throw CommError(text("[comm.store] key '", key, "' did not appear within ",
                         timeout.count(), " ms"));
  }
  return values_[key];
}

bool LocalStore::has(const std::string& key) {
  std::lock_guard lock(mutex_);
  return values_.contains(key);
}

int64_t LocalStore::add(const std::string& key, int64_t amount) {
  std::lock_guard lock(mutex_);
  return counters_[key] += amount;
}

}  // namespace cohort
