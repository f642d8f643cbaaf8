// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_seal.h"

#include <string_view>
#include <utility>

#include "cohort/core/hash.h"
#include "cohort/engine/replicas.h"

namespace cohort {
namespace {

uint64_t joint_hash(const std::vector<Tensor>& memory) {
  uint64_t hash = 0;
  for (const auto& tensor : memory)
    hash = hash64({reinterpret_cast<const char*>(&hash), sizeof hash}, hash_of(tensor));
  return hash;
}

}  // namespace

void StateSeal::close(int part, std::vector<Tensor> memory) {
  if (part >= static_cast<int>(parts_.size())) parts_.resize(part + 1);
  const uint64_t hash = joint_hash(memory);
  parts_[part] = {.closed = true, .memory = std::move(memory), .hash = hash};
}

void StateSeal::open(int part) {
  if (part < static_cast<int>(parts_.size())) parts_[part] = {};
}

std::optional<int> StateSeal::broken() const {
  for (int part = 0; part < static_cast<int>(parts_.size()); ++part)
    if (is_broken(part)) return part;
  return std::nullopt;
}

bool StateSeal::is_broken(int part) const {
  if (part >= static_cast<int>(parts_.size()) || !parts_[part].closed) return false;
  return joint_hash(parts_[part].memory) != parts_[part].hash;
}

}  // namespace cohort
