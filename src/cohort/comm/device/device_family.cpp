// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/device_family.h"

#include <atomic>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/peer_memory.h"

namespace cohort::device_comm {

Tensor DeviceFamily::word() {
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

void DeviceFamily::set(const Tensor& word) {
  std::atomic_ref(*word.mutable_data_ptr<int32_t>()).store(1);
}

void DeviceFamily::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  stopped_ = reason;
  if (word_.defined()) set(word_);
  for (const auto& other : others_) set(other);
}

std::string DeviceFamily::why_stopped() {
  const std::lock_guard lock(mutex_);
  if (stopped_) return *stopped_;
  const bool by_peer = word_.defined() &&
                       std::atomic_ref(*word_.mutable_data_ptr<int32_t>()).load() != 0;
  return by_peer ? "a peer has ended its part of the world" : "";
}

void DeviceFamily::add(const std::shared_ptr<DeviceGroup>& group) {
  std::optional<std::string> aborted;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& other) { return other.expired(); });
    groups_.push_back(group);
    aborted = aborted_;
  }
  if (aborted) group->abort(*aborted);
}

void DeviceFamily::abort(const std::string& reason) {
  stop(reason);
  std::vector<std::weak_ptr<DeviceGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    groups = groups_;
  }
  for (const auto& entry : groups)
    if (const auto group = entry.lock()) group->abort(reason);
}

}  // namespace cohort::device_comm
