// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/comm/store.h"

namespace cohort::test {

// A small store in memory that forked processes inherit: make it before the fork.
// Entries are only ever added, so a process that is killed leaves it whole.
//
// Thread safety: full.
class SharedStore final : public Store {
 public:
  SharedStore();
  ~SharedStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  struct Table;
  Table* table_;
};

}  // namespace cohort::test
