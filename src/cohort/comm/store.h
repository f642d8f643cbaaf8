// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cohort {

// A small map shared by all ranks of a run, for finding one another. Values are
// bytes. Every key lies under the run's token, so that runs and strangers on one
// machine cannot meet by accident.
//
// Failure: CommError when the store is gone or `timeout` passes; the message names
// the key. Thread safety: one thread at a time.
class Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there.
  virtual std::string get(const std::string& key,
                          std::chrono::milliseconds timeout) = 0;
  // Does not wait.
  virtual bool has(const std::string& key) = 0;
  // Adds to a counter (0 at first) and returns the new value. Counters and values
  // are different keys.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;

 protected:
  Store() = default;
};

}  // namespace cohort
