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
  for (auto& [operation, memory] : memory_) send(operation, memory);
}

void SampleKeys::send(const std::string& operation, StepUpload& memory) const {
  std::vector<int64_t> streams;
  for (const int64_t id : ids_)
    streams.push_back(
        static_cast<int64_t>(RandomKey::of_sample(seed_, step_, id, operation).stream));
  memory.send(at::from_blob(streams.data(), memory.there().sizes(), at::kLong));
}

Tensor SampleKeys::bits(const std::string& operation, int64_t first, int64_t count) {
  return lane_.random_bits(streams(operation), seed_, first, count);
}

Tensor SampleKeys::streams(const std::string& operation) {
  const auto known = memory_.find(operation);
  if (known != memory_.end()) return known->second.there();
  const Tensor there = at::empty({static_cast<int64_t>(ids_.size())},
                                 at::TensorOptions(at::kLong).device(lane_.device()));
  send(operation, memory_.emplace(operation, there).first->second);
  return there;
}

}  // namespace cohort
