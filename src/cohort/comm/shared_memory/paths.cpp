// SPDX-License-Identifier: Apache-2.0
// The inline path: small data ride behind the arrival, and every rank reads all of them.
// The direct path: all data lie in shared memory, and ranks work on each other's tensors.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/comm/shared_memory/busy.h"
#include "cohort/comm/shared_memory/reduce.h"
#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

void copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

const int64_t* SharedGroup::counts_of(int rank, uint64_t sequence) const {
  return reinterpret_cast<const int64_t*>(ControlLayout::payload(slot(rank, sequence)));
}

void SharedGroup::write_payload(const Call& call, Slot& slot) {
  std::byte* payload = ControlLayout::payload(slot);
  if (call.op == Op::kAllToAll) {
    auto* counts = reinterpret_cast<int64_t*>(payload);
    std::copy(call.sent.begin(), call.sent.end(), counts);
    std::copy(call.received.begin(), call.received.end(), counts + size_);
    payload += 2 * size_ * sizeof(int64_t);
  }
  const bool gives = call.op != Op::kBroadcast || call.root == rank_;
  if (gives && call.source_bytes <= kInlineBytes && !uses_places(call.op)) {
    copy(payload, call.source, call.source_bytes);
  }
}

// Takes what rank `from` has for this one out of its whole source at `data`.
void SharedGroup::read_source(const Call& call, int from, const std::byte* data) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  switch (call.op) {
    case Op::kAllGather:
    case Op::kSplit:
      copy(call.target + from * call.source_bytes, data, call.source_bytes);
      return;
    case Op::kBroadcast:
      if (from == call.root && from != rank_)
        copy(call.target, data, call.source_bytes);
      return;
    case Op::kAllToAll: {
      const int64_t* sent = counts_of(from, completed_);
      const int64_t skip = std::accumulate(sent, sent + rank_, int64_t{0});
      const int64_t at = std::accumulate(call.received.begin(),
                                         call.received.begin() + from, int64_t{0});
      copy(call.target + at * width, data + skip * width, sent[rank_] * width);
      return;
    }
    default:
      return;
  }
}

void SharedGroup::run_inline(Call& call) {
  if (call.op == Op::kBarrier) return;
  const bool reduces = call.op == Op::kAllReduce || call.op == Op::kReduceScatter;
  for (int r = 0; r < size_; ++r) {
    const std::byte* data = ControlLayout::payload(slot(r, completed_));
    if (call.op == Op::kAllToAll) data += 2 * size_ * sizeof(int64_t);
    if (reduces) {
      inputs_[r] = data;
    } else {
      read_source(call, r, data);
    }
  }
  if (!reduces || call.numel == 0) return;
  if (call.op == Op::kReduceScatter) {
    const int64_t skip = rank_ * call.numel * c10::elementSize(call.dtype);
    for (auto& input : inputs_) input += skip;
  }
  outputs_[0] = call.target;
  reduce(call.dtype, call.reduce, inputs_, std::span(outputs_).first(1), call.numel);
}

void SharedGroup::run_direct(Call& call) {
  if (call.op == Op::kMapPeers) return;
  std::string error;
  {
    Busy busy(*mine_);
    if (!is_aborted()) error = work_on_peers(call);
  }
  ring();
  if (!error.empty()) fail(error);
  check_abort();
}

// Returns what this rank threw in joint work.
std::string SharedGroup::work_on_peers(Call& call) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  for (int r = 0; r < size_; ++r) {
    inputs_[r] =
        addresses_[r] ? static_cast<std::byte*>(memory().at(addresses_[r])) : nullptr;
  }
  switch (call.op) {
    case Op::kAllReduce: {
      const auto [begin, end] = shard_range(call.numel, rank_, size_);
      for (int r = 0; r < size_; ++r) {
        inputs_[r] += begin * width;
        outputs_[r] = const_cast<std::byte*>(inputs_[r]);
      }
      reduce(call.dtype, call.reduce, inputs_, outputs_, end - begin);
      return {};
    }
    case Op::kReduceScatter:
      for (auto& input : inputs_) input += rank_ * call.numel * width;
      outputs_[0] = call.target;
      reduce(call.dtype, call.reduce, inputs_, std::span(outputs_).first(1),
             call.numel);
      return {};
    case Op::kJointWork:
      try {
        call.work();
        return {};
      } catch (const std::exception& thrown) {
        return text("joint work: that of rank ", rank_, " threw: ", thrown.what());
      }
    default:
      // Each rank starts with itself, so that not all read the same one at once.
      for (int i = 0; i < size_; ++i) {
        const int from = (rank_ + i) % size_;
        read_source(call, from, inputs_[from]);
      }
      return {};
  }
}

}  // namespace cohort::shared_memory
