// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/device_batches.h"

namespace cohort {

// A step as one CUDA graph: the first ones are started kernel by kernel, for LibTorch
// chooses kernels in them, and peers meet; then it is captured, and replayed. What is
// captured are whole batches; a short one is started kernel by kernel.
//
// Ranks that exchange what they compute on devices capture and replay the same steps:
// which, follows from the number of samples alone, which all of them know.
//
// Borrows all it is given. Thread safety: none.
class StepGraph {
 public:
  struct Options {
    bool captures = true;
    bool alone = true;  // else no step is left out that peers replay
    // Before a capture: until what was started is done, or a peer is known to be lost.
    std::function<void()> wait = [] {};
  };
  StepGraph(CudaLane& lane, const DeviceBatches& batches, Options options);

  // `step` starts the work of a step and waits for none of it. `whole`: of as many
  // samples as usual. True if it was replayed. ConfigError for work that cannot be
  // captured, or whole batches of several shapes.
  bool run(bool whole, const std::function<void()>& step);
  bool captured() const { return graph_ >= 0; }
  // What NCCL has captured keeps its groups from ending.
  void drop();

 private:
  CudaLane& lane_;
  const DeviceBatches& batches_;
  Options options_;
  int warm_steps_ = 0;  // of whole batches
  int graph_ = -1;
};

}  // namespace cohort
