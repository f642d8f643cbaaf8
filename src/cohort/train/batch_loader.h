// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cohort/data/dataset.h"

namespace cohort {

// Makes a rank's batches of the next step while it computes one, in a thread of its
// own.
//
// The thread that computes takes the slices of a step in order. Each one that is taken
// has the same slice of the next step made, so there is never more than one step ahead.
// Taking another step than the next one, after a rollback, drops what was made.
//
// `make` is called in that thread alone, one call at a time, and keeps to one core
// (keep_to_one_thread). What it throws is thrown by take().
//
// Thread safety: none; the destructor waits for a call of `make` that is under way.
class BatchLoader {
 public:
  using Make = std::function<Batch(int64_t step, int slice)>;
  struct Options {
    int first_slice = 0;  // this rank's first, in the global batch
    int slices = 1;       // how many this rank has
    int64_t end = 0;      // steps of the run: none from this one on is made ahead
    // The longest that take() waits.
    std::chrono::milliseconds patience = std::chrono::minutes(10);
  };

  BatchLoader(Make make, const Options& options);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // DataError when it is not there within the patience.
  Batch take(int64_t step, int slice);

 private:
  struct Order {
    enum class State { kWaits, kIsMade, kDone };
    State state = State::kWaits;
    Batch batch = {};
    std::exception_ptr error = nullptr;
  };
  using Key =
      std::pair<int64_t, int>;  // step and slice: the order in which they are made

  void work();
  std::pair<Key, std::shared_ptr<Order>> next() const;
  std::shared_ptr<Order> order(int64_t step, int slice);

  const Make make_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Order>> orders_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace cohort
