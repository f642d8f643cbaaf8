// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/control_block.h"

#include <algorithm>

namespace cohort::shared_memory {
namespace {

// What a rank gives away in one round should stay in its second-level cache
// together with what it reads.
constexpr size_t kRoundBytes = 512 * 1024;
constexpr size_t kMinPartBytes = 4096;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free);

ControlLayout::ControlLayout(int size) : size_(size) {
  constexpr size_t kPage = 4096;
  part_bytes_ = std::max(kMinPartBytes, kRoundBytes / size_ / kPage * kPage);
  status_ = round_up(sizeof(Control), kLine);
  slots_ = round_up(status_ + size_ * sizeof(Status), kPage);
  // The rows of an uneven all_to_all ride before the data: sent and received.
  const size_t counts = 2 * size_ * sizeof(int64_t);
  slot_stride_ = round_up(sizeof(Slot) + counts + kInlineBytes, kLine);
  slots_stride_ = kSlots * slot_stride_;
  channels_ = round_up(slots_ + size_ * slots_stride_, kPage);
  staging_ = round_up(channels_ + size_ * size_ * sizeof(PairChannel), kPage);
  staging_stride_ = 2 * (size_ + 1) * part_bytes_;
}

}  // namespace cohort::shared_memory
