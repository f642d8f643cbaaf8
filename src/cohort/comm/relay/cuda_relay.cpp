// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/cuda_relay.h"

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>

#include "cohort/comm/device/stream_words.h"
#include "cohort/comm/mapped_pages.h"

namespace cohort::relay_backend {
namespace {

using device_comm::StreamWords;

class RelayFlight final : public device_comm::Flight {
 public:
  explicit RelayFlight(const c10::cuda::CUDAStream& stream) { event_.record(stream); }

  bool query() override { return event_.query(); }

 private:
  c10::cuda::CUDAEvent event_;
};

// On a thread of CUDA.
void run_told(void* told) {
  const std::unique_ptr<std::function<void()>> work(
      static_cast<std::function<void()>*>(told));
  (*work)();
}

class CudaRelay final : public RelayDriver {
 public:
  explicit CudaRelay(int gpu) : gpu_(static_cast<c10::DeviceIndex>(gpu)), words_(gpu) {}

  void* pin(void* pages, size_t bytes) override {
    return map_pages(gpu_, pages, bytes);
  }
  void unpin(void* pages) noexcept override {
    try {
      unmap_pages(gpu_, pages);
    } catch (const std::exception&) {
      // CUDA is of no use any more, and so are its pages.
    }
  }

  void to_host(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void to_device(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }

  void tell(std::function<void()> told) override {
    auto work = std::make_unique<std::function<void()>>(std::move(told));
    C10_CUDA_CHECK(cudaLaunchHostFunc(lane().stream(), run_told, work.get()));
    work.release();  // run_told() has it
  }

  void await(uint64_t* word, uint64_t least) override {
    words_.enqueue({StreamWords::wait(word, least)});
  }

  std::shared_ptr<device_comm::Flight> so_far() override {
    return std::make_shared<RelayFlight>(lane());
  }

 private:
  c10::cuda::CUDAStream lane() const { return c10::cuda::getCurrentCUDAStream(gpu_); }

  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, lane().stream()));
  }

  c10::DeviceIndex gpu_;
  StreamWords words_;
};

}  // namespace

std::shared_ptr<RelayDriver> make_cuda_relay(int gpu) {
  return std::make_shared<CudaRelay>(gpu);
}

}  // namespace cohort::relay_backend
