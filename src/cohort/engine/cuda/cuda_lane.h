// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cohort/tensor.h"

namespace cohort {

// Why nothing can run on a GPU here, in one line; empty if it can. Asking starts CUDA
// in this process: one that forks ranks must ask cuda_is_built() instead.
std::string why_no_cuda();
bool cuda_is_built();
int cuda_device_count();               // 0 where there is none
int64_t cuda_free_memory(int device);  // bytes
// What no other GPU of any node is called: its UUID, in hexadecimal digits.
std::string cuda_device_id(int device);
std::string cuda_device_name(int device);  // its kind: "NVIDIA H200"

// Work of one device, in order, on a stream of its own, and others beside it for work
// that is ordered by marks alone. Calls only start work,
// unless they say that they wait.
//
// Failure: CUDA's own errors come as c10::Error, one of memory as
// c10::OutOfMemoryError. After one the lane is only good for
// destruction. Thread safety: none.
class CudaLane {
 public:
  virtual ~CudaLane() = default;
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  virtual at::Device device() const = 0;

  // Runs `work` with the lane as current stream: what it starts is in the lane.
  virtual void run(const std::function<void()>& work) = 0;
  // The same in another stream of the lane, by number; 0 is run().
  virtual void run_beside(int stream, const std::function<void()>& work) = 0;
  // Marks what the current stream was given so far, under a number; later work of the
  // current stream begins behind that. A mark is set before it is waited for.
  virtual void set_mark(int mark) = 0;
  virtual void wait_for_mark(int mark) = 0;
  virtual int make_marks(int count) = 0;  // numbers from there on are the caller's
  virtual void reach_mark(int mark) = 0;  // blocks until what was marked is done
  // Memory that was allocated in another stream is not used again before the lane is
  // done with it, in what it was given until the last reference goes.
  virtual void takes(const Tensor& tensor) = 0;

  // Records what `work` starts, does none of it, and returns the number of the graph.
  // Waits for all earlier work. Memory that `work` allocates and keeps is the graph's.
  // `work` may neither wait nor copy from pageable memory of the host. Graphs of a lane
  // share memory: they must be replayed in the order they were captured in. ConfigError
  // for work that cannot be captured.
  virtual bool can_capture() const = 0;
  virtual int capture(const std::function<void()>& work) = 0;

  // Starts what was captured, as one.
  virtual void replay(int graph) = 0;
  // Forgets what was captured; what was started of it goes on.
  virtual void drop_graphs() = 0;

  // Blocks until all is done; and until all of the device is, other streams' too.
  virtual void wait() = 0;
  virtual void wait_for_device() = 0;
  // The same for the streams of the lane, but not longer than that: false, if they are
  // not done then.
  virtual bool wait_at_most(std::chrono::milliseconds time) = 0;

  // As in core/random.h, of the device of the lane.
  virtual Tensor random_bits(const Tensor& streams, uint64_t seed, int64_t first,
                             int64_t count) = 0;

  // The most memory of the device that tensors of this process ever took at once.
  virtual int64_t peak_bytes() const = 0;

 protected:
  CudaLane() = default;
};

// For a device to come to its end when peers were left: kernels that are told to stop
// do so in a moment, and nothing else that a step starts takes longer.
inline constexpr std::chrono::seconds kDrainTime{20};

// ConfigError where why_no_cuda() has something to say, or there is no such GPU.
std::unique_ptr<CudaLane> make_cuda_lane(int device = 0);

// The host in the place of a device: everything is done at once, nothing is captured.
// So the arithmetic of what runs in lanes is tested where there is no GPU.
std::unique_ptr<CudaLane> make_host_lane();

}  // namespace cohort
