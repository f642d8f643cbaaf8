// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/cuda_windows.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "cohort/comm/device/patience.h"
#include "cohort/comm/device/stream_words.h"
#include "cohort/comm/mapped_pages.h"

namespace cohort::window_backend {
namespace {

using device_comm::check_cuda;
using device_comm::StreamWords;

class CudaWindows final : public WindowDriver {
 public:
  explicit CudaWindows(int gpu)
      : gpu_(static_cast<c10::DeviceIndex>(gpu)), words_(gpu) {}

  at::Device device() const override { return {at::kCUDA, gpu_}; }

  std::string identity() const override {
    cudaDeviceProp properties{};
    check_cuda("the name of the GPU", cudaGetDeviceProperties(&properties, gpu_));
    return {properties.uuid.bytes, sizeof(properties.uuid.bytes)};
  }

  void* allocate(size_t bytes) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    void* window = nullptr;
    cudaError_t result = cudaMalloc(&window, bytes);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      c10::cuda::CUDACachingAllocator::emptyCache();
      result = cudaMalloc(&window, bytes);
    }
    check_cuda("memory for a window", result);
    return window;
  }

  void release(void* window) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    check_cuda("the end of a window", cudaFree(window));
  }

  std::string invitation_to(void* window) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    cudaIpcMemHandle_t handle{};
    check_cuda("a window for other processes", cudaIpcGetMemHandle(&handle, window));
    return {handle.reserved, sizeof(handle.reserved)};
  }

  void* open(const std::string& invitation) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    cudaIpcMemHandle_t handle{};
    std::memcpy(handle.reserved, invitation.data(), sizeof(handle.reserved));
    void* window = nullptr;
    check_cuda("a window of another process",
               cudaIpcOpenMemHandle(&window, handle, cudaIpcMemLazyEnablePeerAccess));
    return window;
  }

  void close(void* window) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    check_cuda("the end of another's window", cudaIpcCloseMemHandle(window));
  }

  uint64_t* map(uint64_t* pages, size_t bytes) override {
    return static_cast<uint64_t*>(map_pages(gpu_, pages, bytes));
  }
  void unmap(uint64_t* pages) override { unmap_pages(gpu_, pages); }

  void give(std::span<uint64_t* const> words) override {
    std::vector<StreamWords::Operation> all;
    for (uint64_t* const word : words) all.push_back(StreamWords::write(word, 1));
    words_.enqueue(std::move(all));
  }
  void take(std::span<uint64_t* const> words) override {
    std::vector<StreamWords::Operation> all;
    for (uint64_t* const word : words) {
      all.push_back(StreamWords::wait(word, 1));
      all.push_back(StreamWords::write(word, 0));
    }
    words_.enqueue(std::move(all));
  }

  bool is_captured() const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const auto stream = c10::cuda::getCurrentCUDAStream(gpu_);
    check_cuda("the state of a stream",
               cudaStreamIsCapturing(stream.stream(), &status));
    return status != cudaStreamCaptureStatusNone;
  }

  std::future<void> settled() override {
    return device_comm::run_apart([gpu = gpu_] {
      // An error is not told here: what waits asks for the end alone.
      if (cudaSetDevice(gpu) == cudaSuccess) cudaDeviceSynchronize();
    });
  }

 private:
  c10::DeviceIndex gpu_;
  StreamWords words_;
};

}  // namespace

std::shared_ptr<WindowDriver> make_cuda_windows(int gpu) {
  return std::make_shared<CudaWindows>(gpu);
}

}  // namespace cohort::window_backend
