// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_seal.h"

#include <ATen/ATen.h>

#include "cohort/core/hash.h"
#include "cohort/engine/replicas.h"

namespace cohort {
namespace {

uint64_t joint_hash(const std::vector<Tensor>& memory) {
  uint64_t hash = 0;
  for (const auto& tensor : memory)
    hash = hash64({reinterpret_cast<const char*>(&hash), sizeof hash},
                  tensor_hash(tensor));
  return hash;
}

}  // namespace

StateSeal::StateSeal(const FlatState& state, const Chain& chain, int shard)
    : state_(state), chain_(chain), shard_(shard), parts_(state.buckets().size() + 1) {}

// At levels 1 and 2 what others own of `whole` comes anew in each step.
std::vector<Tensor> StateSeal::memory(int part) const {
  std::vector<Tensor> memory;
  if (part == buffers()) {
    for (const auto& [name, tensor] : chain_.buffers()) memory.push_back(tensor);
    return memory;
  }
  const BucketState& bucket = state_.buckets()[part];
  const auto add = [&](const ShardState& shard) {
    memory.push_back(shard.master);
    memory.insert(memory.end(), shard.states.begin(), shard.states.end());
  };
  if (bucket.mirror) add(*bucket.mirror);
  if (!bucket.own) return memory;
  add(bucket);
  Tensor shown = shard_ == 3 ? bucket.travels : bucket.whole;
  if (shard_ == 1 || shard_ == 2) shown = shown.narrow(0, bucket.begin, bucket.count);
  if (shown.defined() && shown.data_ptr() != bucket.master.data_ptr())
    memory.push_back(shown);
  return memory;
}

void StateSeal::close(int part) {
  parts_[part] = {.closed = true, .hash = joint_hash(memory(part))};
}

void StateSeal::close_all() {
  for (int part = 0; part <= buffers(); ++part) close(part);
}

std::string StateSeal::broken() const {
  for (int part = 0; part <= buffers(); ++part)
    if (auto what = broken(part); !what.empty()) return what;
  return "";
}

std::string StateSeal::broken(int part) const {
  if (!parts_[part].closed || joint_hash(memory(part)) == parts_[part].hash) return "";
  for (const auto& place : state_.places())
    if (place.bucket == part) return "the bucket of " + place.name;
  return "the buffers";
}

}  // namespace cohort
