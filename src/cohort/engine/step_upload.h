// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "cohort/tensor.h"

namespace cohort {

// Steps of a runner that runs ahead (StepRunner::start).
inline constexpr int kStepsInFlight = 2;

// What the host gives a device anew with each step. It goes through pinned memory that
// is used in turns, so that nothing is waited for and nothing is allocated: there are
// more turns than steps under way, so a transfer is done when its turn comes again.
// Thread safety: none.
class StepUpload {
 public:
  explicit StepUpload(Tensor there);

  const Tensor& there() const { return there_; }
  // Starts the transfer, in the current lane; it cannot be captured. `values` are in
  // memory of the host, and free again at once.
  void send(const Tensor& values);

 private:
  Tensor there_;
  std::array<Tensor, kStepsInFlight + 1> turns_;  // none where both are the host's
  size_t turn_ = 0;
};

}  // namespace cohort
