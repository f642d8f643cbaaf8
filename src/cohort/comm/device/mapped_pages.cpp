// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/mapped_pages.h"

#include <c10/cuda/CUDAGuard.h>

#include "cohort/comm/device/stream_words.h"

namespace cohort {

using device_comm::check_cuda;

void* map_pages(int gpu, void* pages, size_t bytes) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
  check_cuda("pages of the host",
             cudaHostRegister(pages, bytes,
                              cudaHostRegisterPortable | cudaHostRegisterMapped));
  void* mapped = nullptr;
  const cudaError_t result = cudaHostGetDevicePointer(&mapped, pages, 0);
  if (result != cudaSuccess) cudaHostUnregister(pages);
  check_cuda("pages of the host, for the GPU", result);
  return mapped;
}

void unmap_pages(int gpu, void* pages) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
  check_cuda("the end of pages", cudaHostUnregister(pages));
}

}  // namespace cohort
