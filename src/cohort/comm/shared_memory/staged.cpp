// SPDX-License-Identifier: Apache-2.0
// The staged path: data that peers cannot see pass through buffers in the control
// block, small enough to stay in cache.
//
// In each round a rank fills its buffer with what its peers need, takes what it
// needs from theirs, and (all_reduce) copies the parts its peers have reduced.
// There are two buffers, so that a rank fills round k + 1 while others take k:
//   fill(k)  needs every rank to have taken round k - 2, and this one to have
//            copied it;
//   take(k)  needs every rank to have filled round k. So all have copied k - 2, and
//            the buffer of reduced parts is free;
//   copy(k)  needs every rank to have taken round k.
// Rounds count on from one collective to the next: none ends with a barrier.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/comm/shared_memory/reduce.h"
#include "cohort/comm/shared_memory/shared_group.h"

namespace cohort::shared_memory {
namespace {

struct StagedRange {
  int64_t begin, count;
};

// Round `round` of `total` things, `most` at a time.
StagedRange cut(int64_t total, int64_t most, int64_t round) {
  const int64_t begin = std::min(total, round * most);
  return {begin, std::min(most, total - begin)};
}

// Rank `rank`'s part of a round of all_reduce.
StagedRange part_of(StagedRange round, int rank, int size) {
  const int64_t part = (round.count + size - 1) / size;
  const int64_t begin = std::min(round.count, rank * part);
  return {round.begin + begin, std::min(part, round.count - begin)};
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t offset_of(const int64_t* counts, int rank) {
  return std::accumulate(counts, counts + rank, int64_t{0});
}

}  // namespace

int64_t SharedGroup::count_rounds(const Call& call) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  const int64_t part = layout_.part_bytes();
  switch (call.op) {
    case Op::kReduceScatter:
      return divide_up(call.numel, part / width);
    case Op::kAllReduce:
      return divide_up(call.numel, part / width * size_);
    case Op::kAllToAll: {
      int64_t most = 0;
      for (int r = 0; r < size_; ++r) {
        const int64_t* sent = counts_of(r, completed_);
        most = std::max(most, *std::max_element(sent, sent + size_));
      }
      return divide_up(most, part / width);
    }
    default:
      return divide_up(call.source_bytes, part * size_);
  }
}

int SharedGroup::move_staged(Call& call) {
  const bool copies = call.op == Op::kAllReduce;
  while (true) {
    int missing = kDone;
    if (call.filled < call.rounds && call.filled <= call.taken + 1 &&
        (!copies || call.copied + 1 >= call.filled)) {
      const uint64_t round = round_base_ + call.filled;
      if (round >= 2) missing = first_behind(&Status::taken, round - 1);
      if (missing == kDone) {
        fill(call, call.filled++);
        mine_->filled.store(round + 1);
        ring();
        continue;
      }
    }
    if (call.taken < call.filled) {
      const uint64_t round = round_base_ + call.taken;
      missing = first_behind(&Status::filled, round + 1);
      if (missing == kDone) {
        take(call, call.taken++);
        touch();
        mine_->taken.store(round + 1);
        ring();
        continue;
      }
    }
    if (copies && call.copied < call.taken) {
      const uint64_t round = round_base_ + call.copied;
      missing = first_behind(&Status::taken, round + 1);
      if (missing == kDone) {
        copy_reduced(call, call.copied++);
        continue;
      }
    }
    return missing;
  }
}

void SharedGroup::fill(const Call& call, int64_t round) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  const int64_t part = layout_.part_bytes() / width;
  const uint64_t buffer = round_base_ + round;
  const auto put = [&](int to, int64_t begin, int64_t count) {
    if (count <= 0) return;
    std::memcpy(layout_.part(spec_.control, rank_, buffer, to),
                call.source + begin * width, static_cast<size_t>(count * width));
  };
  if (call.op == Op::kAllGather || call.op == Op::kBroadcast) {
    if (call.op == Op::kBroadcast && call.root != rank_) return;
    const StagedRange range = cut(call.source_bytes / width, part * size_, round);
    return put(0, range.begin, range.count);
  }
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    if (call.op == Op::kAllReduce) {
      const StagedRange range =
          part_of(cut(call.numel, part * size_, round), to, size_);
      put(to, range.begin, range.count);
    } else if (call.op == Op::kReduceScatter) {
      const StagedRange range = cut(call.numel, part, round);
      put(to, to * call.numel + range.begin, range.count);
    } else {
      const StagedRange range = cut(call.sent[to], part, round);
      put(to, offset_of(call.sent.data(), to) + range.begin, range.count);
    }
  }
}

void SharedGroup::take(const Call& call, int64_t round) {
  if (call.op == Op::kAllReduce || call.op == Op::kReduceScatter) {
    return take_reduced(call, round);
  }
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  const int64_t part = layout_.part_bytes() / width;
  const uint64_t buffer = round_base_ + round;
  for (int i = 0; i < size_; ++i) {
    const int from = (rank_ + i) % size_;
    StagedRange range;
    int64_t target = 0, source = 0;  // elements from the start of each
    int slice = 0;
    if (call.op == Op::kAllToAll) {
      range = cut(call.received[from], part, round);
      target = offset_of(call.received.data(), from) + range.begin;
      source = offset_of(call.sent.data(), rank_) + range.begin;
      slice = rank_;
    } else {
      if (call.op == Op::kBroadcast && (from != call.root || from == rank_)) continue;
      range = cut(call.source_bytes / width, part * size_, round);
      target = (call.op == Op::kAllGather ? from * call.numel : 0) + range.begin;
      source = range.begin;
    }
    const std::byte* data = from == rank_
                                ? call.source + source * width
                                : layout_.part(spec_.control, from, buffer, slice);
    std::byte* to = call.target + target * width;
    if (range.count > 0 && to != data) {
      std::memcpy(to, data, static_cast<size_t>(range.count * width));
    }
  }
}

// Reduces this rank's part of a round: its own data from where they are, its peers'
// from their buffers.
void SharedGroup::take_reduced(const Call& call, int64_t round) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  const int64_t part = layout_.part_bytes() / width;
  const uint64_t buffer = round_base_ + round;
  const bool scatters = call.op == Op::kReduceScatter;
  const StagedRange range =
      scatters ? cut(call.numel, part, round)
               : part_of(cut(call.numel, part * size_, round), rank_, size_);
  if (range.count <= 0) return;
  const int64_t own = scatters ? rank_ * call.numel : 0;
  for (int r = 0; r < size_; ++r) {
    inputs_[r] = r == rank_ ? call.source + (own + range.begin) * width
                            : layout_.part(spec_.control, r, buffer, rank_);
  }
  outputs_[0] = call.target + range.begin * width;
  if (!scatters && size_ > 1) {
    outputs_[1] = layout_.part(spec_.control, rank_, buffer, size_);
  }
  const size_t num_outputs = scatters || size_ == 1 ? 1 : 2;
  reduce(call.dtype, call.reduce, inputs_, std::span(outputs_).first(num_outputs),
         range.count);
}

void SharedGroup::copy_reduced(const Call& call, int64_t round) {
  const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
  const int64_t part = layout_.part_bytes() / width;
  const uint64_t buffer = round_base_ + round;
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + i) % size_;
    const StagedRange range =
        part_of(cut(call.numel, part * size_, round), from, size_);
    if (range.count <= 0) continue;
    std::memcpy(call.target + range.begin * width,
                layout_.part(spec_.control, from, buffer, size_),
                static_cast<size_t>(range.count * width));
  }
}

}  // namespace cohort::shared_memory
