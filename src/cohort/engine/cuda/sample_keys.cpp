// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/sample_keys.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/random.h"

namespace cohort {

void SampleKeys::begin(int64_t step, std::vector<int64_t> ids) {
  COHORT_CHECK(memory_.empty() || ids.size() == ids_.size(), ids.size(),
               " samples where there were ", ids_.size());
  step_ = step;
  ids_ = std::move(ids);
  for (const auto& [operation, memory] : memory_) send(operation, memory);
}

// Pinned memory is only used again when the transfer from it is done: LibTorch's
// allocator sees to that.
void SampleKeys::send(const std::string& operation, const Tensor& memory) const {
  Tensor host =
      at::empty(memory.sizes(),
                at::TensorOptions(at::kLong).pinned_memory(lane_.device().is_cuda()));
  auto* const streams = host.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < ids_.size(); ++i)
    streams[i] = static_cast<int64_t>(
        RandomKey::of_sample(seed_, step_, ids_[i], operation).stream);
  memory.copy_(host, /*non_blocking=*/true);
}

Tensor SampleKeys::bits(const std::string& operation, int64_t count) {
  return lane_.random_bits(streams(operation), seed_, count);
}

Tensor SampleKeys::streams(const std::string& operation) {
  const auto [it, fresh] = memory_.try_emplace(operation);
  if (fresh) {
    it->second = at::empty({static_cast<int64_t>(ids_.size())},
                           at::TensorOptions(at::kLong).device(lane_.device()));
    send(operation, it->second);
  }
  return it->second;
}

}  // namespace cohort
