// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "cohort/engine/pending_work.h"

namespace cohort {

// Reductions of a plain module's gradients, while its backward goes on: a bucket starts
// when all gradients of it are there, or none will come, and those before it have
// started; so every rank starts them in one order. Thread safety: none.
class BucketReducer {
 public:
  using Start = std::function<PendingWork(int bucket)>;

  // `gradients`: of each bucket.
  BucketReducer(std::vector<size_t> gradients, Start start)
      : gradients_(std::move(gradients)),
        start_(std::move(start)),
        pending_(gradients_.size()) {}

  // Around the backward of the last part of a step; earlier ones start nothing.
  void begin() {
    missing_ = gradients_;
    started_ = 0;
    open_ = true;
  }
  void arrived(int bucket) {
    if (!open_) return;
    --missing_[bucket];
    while (started_ < missing_.size() && missing_[started_] == 0) start_next();
  }
  // Starts those whose gradients have not all come.
  void end() {
    open_ = false;
    while (started_ < gradients_.size()) start_next();
  }

  void finish(int bucket) { pending_[bucket].finish(); }
  void finish_all() {
    for (auto& pending : pending_) pending.finish();
  }

 private:
  void start_next() {
    const size_t bucket = started_++;
    pending_[bucket] = start_(static_cast<int>(bucket));
  }

  std::vector<size_t> gradients_;
  Start start_;
  std::vector<PendingWork> pending_;
  std::vector<size_t> missing_;  // in this backward
  size_t started_ = 0;
  bool open_ = false;
};

}  // namespace cohort
