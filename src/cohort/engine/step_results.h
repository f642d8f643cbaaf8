// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/state_kernels.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// What steps came to, on its way from a device to the host: a step is read while the
// next one is under way. Borrows all it is given. Thread safety: none.
class StepResults {
 public:
  // `numbers`: StepNumbers, on the device.
  StepResults(CudaLane& lane, Communicator& world, const Tensor& numbers,
              StepInFlight& step);

  // The last of a step that is started. BugError if kStepsInFlight are under way.
  void leave(const std::optional<SampleSum>& expected);

  struct Result {
    int64_t step = 0;
    std::optional<SampleSum> expected;
    StepSplit split;              // as the host sees it
    Tensor numbers, sums, times;  // in memory of the host
    int mark = 0;
    Work lane;
  };
  // Waits for the oldest. CommError.
  const Result& await();
  // That one is known: the next is the oldest. It is good until its turn comes again.
  void pop() { left_.pop_front(); }
  // Without waiting; null: there is none.
  const Result* oldest() const { return left_.empty() ? nullptr : left_.front(); }

  bool empty() const { return left_.empty(); }
  void clear() { left_.clear(); }

 private:
  CudaLane& lane_;
  Communicator& world_;
  const Tensor numbers_;
  StepInFlight& step_;
  std::array<Result, kStepsInFlight> results_;  // in turns
  std::deque<Result*> left_;                    // not yet known, oldest first
};

}  // namespace cohort
