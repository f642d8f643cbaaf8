// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/pinned_memory.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "cohort/comm/mapped_pages.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {
namespace {

// Pages of the host that a device has mapped. LibTorch's allocator of pinned memory
// would round them up to a power of two.
class PinnedPages {
 public:
  PinnedPages(size_t bytes, at::Device device) : bytes_(bytes), gpu_(device.index()) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (memory_ == MAP_FAILED) refuse(std::strerror(errno));
    madvise(memory_, bytes, MADV_HUGEPAGE);  // fewer pages to look up over the bus
    try {
      on_device_ = map_pages(gpu_, memory_, bytes);
    } catch (const ConfigError& error) {
      munmap(memory_, bytes_);
      refuse(error.what());
    }
  }
  ~PinnedPages() {
    try {
      unmap_pages(gpu_, memory_);
    } catch (const std::exception&) {
      // What cannot be let go is of no use to anyone any more.
    }
    munmap(memory_, bytes_);
  }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

  void* on_device() const { return on_device_; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(text("[engine] step.offload cannot pin ",
                           format_bytes(static_cast<double>(bytes_)),
                           " more of the host's memory (", why,
                           "); legal: less state, as with a higher shard level or more "
                           "nodes, or step.offload=none"));
  }

  size_t bytes_;
  int gpu_;
  void* memory_ = nullptr;
  void* on_device_ = nullptr;
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
