// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/store.h"
#include "cohort/tensor.h"

namespace cohort::gloo_backend {

// The flight record of a rank: the operation it is in, or was in last. What the
// ranks need not agree on is left out.
struct Record {
  const char* op = "nothing";
  at::ScalarType dtype = at::ScalarType::Undefined;
  int64_t numel = -1;
  const char* reduce = nullptr;
  int root = -1;
  uint64_t sequence = 0;
  std::chrono::steady_clock::time_point started = {};
};

std::string describe(const Record& record);  // "all_reduce(float32, 1000, sum) #812"
// Equal on all ranks that are in one collective; others get another, but for one
// case in 65,536.
uint32_t fingerprint(const Record& record);
// "rank 3 is missing", "ranks 1, 4 are missing"
std::string describe_missing(const std::vector<int>& ranks);

// What the ranks of a broken group tell one another through the store, so that each
// can name the first cause. All of it is best effort, in bounded time; a store that
// is gone costs names, nothing else. Thread safety: one thread at a time.
class Notes {
 public:
  // A connection of its own: the caller's may be in use by another thread.
  using Open = std::function<std::unique_ptr<Store>()>;

  Notes(Open open, std::string prefix, int rank, int size);

  // Before the connections are closed: this rank ends the group on purpose.
  void publish_abort(const std::string& reason) noexcept;
  // After: this rank lives, and was at `record`.
  void publish_failure(const Record& record) noexcept;

  // Why the group broke, seen from a rank at `record`: which rank aborted it, is
  // missing, or was elsewhere. Empty if no rank knows.
  std::string find_cause(const Record& record) noexcept;

 private:
  Store& store();
  bool find_abort(std::string& cause);
  void await_others();
  std::string compare(const Record& record);

  Open open_;
  std::string prefix_;
  int rank_, size_;
  std::unique_ptr<Store> store_;
  bool published_ = false;
};

}  // namespace cohort::gloo_backend
