// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/stream_words.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort::device_comm {
namespace {

constexpr size_t kMostWordsAtOnce = 255;

c10::DeviceIndex index_of(int gpu) { return static_cast<c10::DeviceIndex>(gpu); }

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

}  // namespace

void check_cuda(const char* what, cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // it is told here, and not once more by a later call
  throw ConfigError(text(what, ": ", cudaGetErrorString(result)));
}

StreamWords::StreamWords(int gpu)
    : gpu_(gpu), enqueue_(driver_function<Enqueue>("cuStreamBatchMemOp")) {
  check_abilities();
}

void StreamWords::check_abilities() const {
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

StreamWords::Operation StreamWords::wait(uint64_t* word, uint64_t least) {
  Operation one{};
  one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  one.waitValue.address = reinterpret_cast<CUdeviceptr>(word);
  one.waitValue.value64 = least;
  one.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return one;
}

StreamWords::Operation StreamWords::write(uint64_t* word, uint64_t value) {
  Operation one{};
  one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  one.writeValue.address = reinterpret_cast<CUdeviceptr>(word);
  one.writeValue.value64 = value;
  // As it is by default, behind a fence for the whole system.
  one.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return one;
}

void StreamWords::enqueue(std::vector<Operation> all) const {
  const auto stream = c10::cuda::getCurrentCUDAStream(index_of(gpu_));
  for (size_t begin = 0; begin < all.size(); begin += kMostWordsAtOnce) {
    const size_t count = std::min(kMostWordsAtOnce, all.size() - begin);
    const CUresult result =
        enqueue_(stream.stream(), static_cast<unsigned int>(count), &all[begin], 0);
    if (result != CUDA_SUCCESS)
      throw CommError(text("[comm] cuStreamBatchMemOp: error ",
                           static_cast<int>(result), " of the CUDA driver"));
  }
}

}  // namespace cohort::device_comm
