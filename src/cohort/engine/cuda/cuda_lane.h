// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace cohort {

// Why nothing can run on a GPU here, in one line; empty if it can.
std::string why_no_cuda();

// Work of one GPU, in order, on a stream of its own. Calls only start work, unless they
// say that they wait.
//
// Failure: CUDA's own errors come as c10::Error. After one the lane is only good for
// destruction. Thread safety: none.
class CudaLane {
 public:
  virtual ~CudaLane() = default;
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  // Runs `work` with the lane as current stream: what it starts is in the lane.
  virtual void run(const std::function<void()>& work) = 0;

  // Records what `work` starts, and does none of it. Waits for all earlier work. Memory
  // that `work` allocates and keeps is the graph's. `work` may neither wait nor copy
  // from pageable memory of the host.
  virtual void capture(const std::function<void()>& work) = 0;

  // Starts what was captured, as one.
  virtual void replay() = 0;

  // Blocks until all is done.
  virtual void wait() = 0;

  // The most memory of the GPU that tensors of this process ever took at once.
  virtual int64_t peak_bytes() const = 0;

 protected:
  CudaLane() = default;
};

// A lane of the first GPU. ConfigError where why_no_cuda() has something to say.
std::unique_ptr<CudaLane> make_cuda_lane();

}  // namespace cohort
