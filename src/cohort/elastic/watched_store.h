// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/comm/store.h"
#include "cohort/elastic/membership.h"

namespace cohort {

// A rank's store, for as long as its world lasts: a rank that waits in it for a lost
// peer learns from the agent that the world is over, long before its deadline.
class WatchedStore final : public Store {
 public:
  WatchedStore(Store& store, const Membership& membership)
      : store_(store), membership_(membership) {}

  void set(const std::string& key, const std::string& value) override {
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool has(const std::string& key) override { return store_.has(key); }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_.add(key, amount);
  }

 private:
  Store& store_;
  const Membership& membership_;
};

}  // namespace cohort
