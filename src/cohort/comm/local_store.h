// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "cohort/comm/store.h"

namespace cohort {

// A store inside one process: for a world of one, and for ranks as threads.
//
// Thread safety: full, unlike other stores; all ranks use one object.
class LocalStore final : public Store {
 public:
  LocalStore() = default;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
};

}  // namespace cohort
