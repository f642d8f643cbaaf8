// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cohort/comm/shared_memory/control_block.h"
#include "cohort/tensor.h"

namespace cohort::shared_memory {

// One side of one transfer between this rank and `peer`.
struct Pending {
  uint64_t exchange;
  bool sends;
  int peer;
  uint64_t ordinal;  // in its channel
  Tensor tensor;     // contiguous
  Tensor copy_to;
  std::byte* data;
  int64_t bytes;
  int64_t moved = 0;
  Fingerprint print;
  bool posted = false;
  bool agreed = false;
  bool finished = false;
};

// What a rank has sent and received in a group, and what is on its way.
struct PendingTransfers {
  explicit PendingTransfers(int size) : sent(size), received(size), buffers(size) {}

  std::deque<Pending> pending;
  uint64_t exchanges = 0;
  std::vector<uint64_t> sent, received;  // ordinals by peer
  std::vector<void*> buffers;            // the channels' buffers, by peer
};

}  // namespace cohort::shared_memory
