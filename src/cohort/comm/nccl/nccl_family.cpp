// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_family.h"

#include <atomic>

#include "cohort/comm/nccl/nccl_group.h"
#include "cohort/comm/peer_memory.h"

namespace cohort::nccl_backend {

Tensor NcclFamily::word() {
  {
    const std::lock_guard lock(mutex_);
    if (word_.defined()) return word_;
  }
  const Tensor word = host_.allocate({1}, at::kInt);
  std::vector<Tensor> others;
  if (auto* const peers = dynamic_cast<PeerMemory*>(&host_))
    others = peers->map_peers(word);
  const std::lock_guard lock(mutex_);
  word_ = word;
  others_ = std::move(others);
  if (stopped_) set(word_);
  return word_;
}

void NcclFamily::set(const Tensor& word) {
  std::atomic_ref(*word.mutable_data_ptr<int32_t>()).store(1);
}

void NcclFamily::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  if (word_.defined()) set(word_);
  for (const auto& other : others_) set(other);
}

void NcclFamily::add(const std::shared_ptr<NcclGroup>& group) {
  std::optional<std::string> aborted;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& other) { return other.expired(); });
    groups_.push_back(group);
    aborted = aborted_;
  }
  if (aborted) group->abort(*aborted);
}

void NcclFamily::abort(const std::string& reason) {
  stop();
  std::vector<std::weak_ptr<NcclGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    groups = groups_;
  }
  for (const auto& entry : groups)
    if (const auto group = entry.lock()) group->abort(reason);
}

}  // namespace cohort::nccl_backend
