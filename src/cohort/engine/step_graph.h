// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/device_batches.h"

namespace cohort {

// A step as one CUDA graph, or one for each stretch of it: the first ones are started
// kernel by kernel, for LibTorch chooses kernels in them, and peers meet; then it is
// captured, and replayed. What is captured are whole batches; a short one is started
// kernel by kernel.
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
    int stretches = 1;
    // Before a capture: until what was started is done, or a peer is known to be lost.
    std::function<void()> wait = [] {};
  };
  StepGraph(CudaLane& lane, const DeviceBatches& batches, Options options);

  // `work` starts that stretch of a step and waits for none of it; stretches come in
  // their order, and a step that begins as a graph ends as one. `whole`: of as many
  // samples as usual. True if it was replayed. ConfigError for work that cannot be
  // captured, or whole batches of several shapes.
  bool run(int stretch, bool whole, const std::function<void()>& work);
  bool captured() const {
    return static_cast<int>(graphs_.size()) == options_.stretches;
  }
  // What NCCL has captured keeps its groups from ending.
  void drop();

 private:
  void begin(bool whole);

  CudaLane& lane_;
  const DeviceBatches& batches_;
  Options options_;
  int warm_steps_ = 0;                       // made with whole batches
  bool is_usual_ = false, replays_ = false;  // the step at hand
  std::vector<int> graphs_;                  // by stretch
};

}  // namespace cohort
