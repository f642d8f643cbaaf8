// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/device_batches.h"

namespace cohort {

// A step as one CUDA graph: the first ones are started kernel by kernel, for LibTorch
// chooses kernels in them; then it is captured, and replayed. What is captured are
// batches of the shapes that came first; a step of others is started kernel by kernel.
//
// Borrows all it is given. Thread safety: none.
class StepGraph {
 public:
  StepGraph(CudaLane& lane, const DeviceBatches& batches, bool captures);

  // `step` starts the work of a step and waits for none of it. ConfigError for work
  // that cannot be captured.
  void run(const std::function<void()>& step);
  bool captured() const { return graph_ >= 0; }

 private:
  CudaLane& lane_;
  const DeviceBatches& batches_;
  bool captures_;
  int warm_steps_ = 0;  // of the usual shapes
  int graph_ = -1;
};

}  // namespace cohort
