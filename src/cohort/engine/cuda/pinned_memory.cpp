// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/pinned_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {
namespace {

// Pages of the host that a device has mapped. LibTorch's allocator of pinned memory
// would round them up to a power of two.
class PinnedPages {
 public:
  PinnedPages(size_t bytes, at::Device device) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (memory_ == MAP_FAILED) refuse(std::strerror(errno));
    madvise(memory_, bytes, MADV_HUGEPAGE);  // fewer pages to look up over the bus
    const c10::cuda::CUDAGuard guard(device);
    const auto flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
    cudaError_t error = cudaHostRegister(memory_, bytes, flags);
    registered_ = error == cudaSuccess;
    if (registered_) error = cudaHostGetDevicePointer(&on_device_, memory_, 0);
    if (error == cudaSuccess) return;
    cudaGetLastError();  // it is told here, and not by the next call
    let_go();
    refuse(cudaGetErrorString(error));
  }
  ~PinnedPages() { let_go(); }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

  void* on_device() const { return on_device_; }

 private:
  // What cannot be let go is of no use to anyone any more.
  void let_go() {
    if (registered_ && cudaHostUnregister(memory_) != cudaSuccess) cudaGetLastError();
    munmap(memory_, bytes_);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(text("[engine] step.offload cannot pin ",
                           format_bytes(static_cast<double>(bytes_)),
                           " more of the host's memory (", why,
                           "); legal: less state, as with a higher shard level or more "
                           "nodes, or step.offload=none"));
  }

  size_t bytes_;
  void* memory_ = nullptr;
  void* on_device_ = nullptr;
  bool registered_ = false;
};

}  // namespace

Tensor pinned_zeros(int64_t numel, at::ScalarType dtype, at::Device device) {
  const auto bytes = static_cast<size_t>(numel * size_of(dtype));
  const auto pages = std::make_shared<PinnedPages>(bytes, device);
  return at::from_blob(
      pages->on_device(), {numel}, [pages](void*) {},
      at::TensorOptions(dtype).device(device), device);
}

}  // namespace cohort
