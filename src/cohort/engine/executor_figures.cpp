// SPDX-License-Identifier: Apache-2.0
// What an executor shows to measurements and tests.
#include "cohort/engine/executor.h"

namespace cohort {

std::vector<Tensor> Executor::memory_of(const Value& value) const {
  const BucketState& bucket = state_.buckets()[value.of];
  std::vector<Tensor> all;
  const auto add = [&](const Tensor& tensor) {
    if (tensor.defined() && tensor.storage().data()) all.push_back(tensor);
  };
  const auto add_shard = [&](const ShardState& shard) {
    add(shard.master);
    for (const auto& moment : shard.states) add(moment);
  };
  if (value.what == What::kWhole) {
    add(bucket.whole);
  } else if (value.what == What::kState) {
    if (bucket.own) add_shard(bucket);
    if (bucket.mirror) add_shard(*bucket.mirror);
    add(bucket.travels);
  } else if (bucket.trained) {
    for (const auto& tensor : gradients_.memory_of(value)) add(tensor);
  }
  return all;
}

std::chrono::duration<double> Executor::time_communication() {
  comm_.barrier().wait();
  const GradientSums::Visitor nothing = [](int, int64_t, int64_t, float*) {};
  if (lane_) lane_->wait();
  const auto start = std::chrono::steady_clock::now();
  in_lane([&] {
    for (int i = 0; i < static_cast<int>(state_.buckets().size()); ++i)
      if (state_.buckets()[i].trained && state_.buckets()[i].own)
        gradients_
            .reduce(i, schedule_.shard >= 2 ? 0 : kNone,
                    updates_at_once_ ? &nothing : nullptr)
            .finish();
    comm_.so_far().wait();
  });
  return std::chrono::steady_clock::now() - start;
}

}  // namespace cohort
