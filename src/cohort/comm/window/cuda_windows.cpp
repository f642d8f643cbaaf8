// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/cuda_windows.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cohort/comm/device/patience.h"
#include "cohort/core/error.h"

namespace cohort::window_backend {
namespace {

void check_cuda(const char* what, cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // it is told here, and not once more by a later call
  throw ConfigError(text(what, ": ", cudaGetErrorString(result)));
}

// A function of the driver, which nothing of ours is linked with.
template <typename Function>
Function driver_function(const char* name) {
  constexpr unsigned int kVersion = 12000;  // whose signatures are those of cuda.h
  void* found = nullptr;
  auto answer = cudaDriverEntryPointSymbolNotFound;
  check_cuda(name, cudaGetDriverEntryPointByVersion(name, &found, kVersion,
                                                    cudaEnableDefault, &answer));
  if (answer != cudaDriverEntryPointSuccess || !found)
    throw ConfigError(text("the CUDA driver has no ", name));
  return reinterpret_cast<Function>(found);
}

class CudaWindows final : public WindowDriver {
 public:
  explicit CudaWindows(int gpu)
      : gpu_(static_cast<c10::DeviceIndex>(gpu)),
        enqueue_(driver_function<Enqueue>("cuStreamBatchMemOp")) {
    check_abilities();
  }

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
    const c10::cuda::CUDAGuard guard(gpu_);
    check_cuda("pages for words",
               cudaHostRegister(pages, bytes,
                                cudaHostRegisterPortable | cudaHostRegisterMapped));
    void* mapped = nullptr;
    check_cuda("words of the host", cudaHostGetDevicePointer(&mapped, pages, 0));
    return static_cast<uint64_t*>(mapped);
  }

  void unmap(uint64_t* pages) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    check_cuda("the end of words", cudaHostUnregister(pages));
  }

  void give(std::span<uint64_t* const> words) override {
    Operations all;
    for (uint64_t* const word : words) all.push_back(write(word, 1));
    enqueue(std::move(all));
  }
  void take(std::span<uint64_t* const> words) override {
    Operations all;
    for (uint64_t* const word : words) {
      all.push_back(wait(word, 1));
      all.push_back(write(word, 0));
    }
    enqueue(std::move(all));
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
      // An error is not told here: whoever waits asks for the end alone.
      if (cudaSetDevice(gpu) == cudaSuccess) cudaDeviceSynchronize();
    });
  }

 private:
  using Operations = std::vector<CUstreamBatchMemOpParams>;
  using Enqueue = CUresult (*)(CUstream, unsigned int, CUstreamBatchMemOpParams*,
                               unsigned int);
  static constexpr size_t kMostAtOnce = 255;

  static CUstreamBatchMemOpParams wait(uint64_t* word, uint64_t least) {
    CUstreamBatchMemOpParams one{};
    one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    one.waitValue.address = reinterpret_cast<CUdeviceptr>(word);
    one.waitValue.value64 = least;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return one;
  }

  static CUstreamBatchMemOpParams write(uint64_t* word, uint64_t value) {
    CUstreamBatchMemOpParams one{};
    one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    one.writeValue.address = reinterpret_cast<CUdeviceptr>(word);
    one.writeValue.value64 = value;
    // As it is by default, behind a fence for the whole system.
    one.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return one;
  }

  void check_abilities() const {
    int mapped = 0;
    check_cuda("memory of the host",
               cudaDeviceGetAttribute(&mapped, cudaDevAttrCanMapHostMemory, gpu_));
    int words = 0;
    const auto attribute =
        driver_function<CUresult (*)(int*, CUdevice_attribute, CUdevice)>(
            "cuDeviceGetAttribute");
    const auto result =
        attribute(&words, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, gpu_);
    if (!mapped || result != CUDA_SUCCESS || !words)
      throw ConfigError("the GPU cannot wait for words of 64 bits in streams");
  }

  // In their order.
  void enqueue(Operations all) const {
    const auto stream = c10::cuda::getCurrentCUDAStream(gpu_);
    for (size_t begin = 0; begin < all.size(); begin += kMostAtOnce) {
      const size_t count = std::min(kMostAtOnce, all.size() - begin);
      const CUresult result =
          enqueue_(stream.stream(), static_cast<unsigned int>(count), &all[begin], 0);
      if (result != CUDA_SUCCESS)
        throw CommError(text("[comm] cuStreamBatchMemOp: error ",
                             static_cast<int>(result), " of the CUDA driver"));
    }
  }

  c10::DeviceIndex gpu_;
  Enqueue enqueue_;
};

}  // namespace

std::shared_ptr<WindowDriver> make_cuda_windows(int gpu) {
  return std::make_shared<CudaWindows>(gpu);
}

}  // namespace cohort::window_backend
