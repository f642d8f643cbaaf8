// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/shared_group.h"

#include <algorithm>

#include "cohort/comm/staging.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {

SharedGroup::SharedGroup(GroupSpec spec)
    : spec_(std::move(spec)),
      rank_(spec_.rank),
      size_(static_cast<int>(spec_.world_ranks.size())),
      layout_(size_),
      control_(&ControlLayout::control(spec_.control)),
      world_control_(spec_.world ? spec_.world->control_ : control_),
      mine_(&status(rank_)),
      seen_(size_),
      addresses_(size_),
      peers_completed_(size_),
      inputs_(size_),
      outputs_(size_),
      transfers_(size_) {
  for (int r = 0; r < size_; ++r) {
    progress_of_.push_back(spec_.world ? &spec_.world->status(spec_.world_ranks[r])
                                       : &status(r));
  }
  if (spec_.world) spins_ = spec_.world->spins_;
  touch();
  spec_.siblings->join(*this);
}

SharedGroup::~SharedGroup() {
  spec_.siblings->leave(*this);
  if (counted_) spec_.siblings->count(-1);
  mine_->left.store(1);
  ring();
  for (void* buffer : transfers_.buffers) {
    if (buffer) memory().release(buffer);
  }
  // Peers still look at the block: the one that owns it keeps it until all left.
  if (spec_.owns_control) {
    memory().retire(spec_.control, control_->left, static_cast<uint32_t>(size_));
  }
  control_->left.fetch_add(1);
}

struct SharedGroup::CollectiveGoal : Goal {
  CollectiveGoal(SharedGroup& group, uint64_t sequence)
      : group(group), sequence(sequence) {}
  int attempt() override {
    const int missing = group.progress();
    return group.completed_ > sequence ? kDone : missing;
  }
  std::vector<int> missing() override { return group.missing_ranks(); }
  std::string what() override {
    const auto& call = group.calls_[group.completed_ % kSlots];
    return text(describe(call.print()), " (collective ", group.completed_, ")");
  }
  SharedGroup& group;
  uint64_t sequence;
};

// Room in the ring: every rank has finished the collective that used the slot.
struct SharedGroup::SlotGoal : Goal {
  SlotGoal(SharedGroup& group, uint64_t needed) : group(group), needed(needed) {}
  int attempt() override {
    group.progress();
    return group.first_behind(&Status::completed, needed);
  }
  std::vector<int> missing() override {
    std::vector<int> ranks;
    for (int r = 0; r < group.size_; ++r) {
      if (group.status(r).completed.load() < needed) ranks.push_back(r);
    }
    return ranks;
  }
  std::string what() override { return text("collective ", needed - 1, " to finish"); }
  SharedGroup& group;
  uint64_t needed;
};

Call& SharedGroup::next_call() {
  claim();
  check_broken();
  check_abort();
  if (completed_ < posted_) progress();
  if (posted_ >= kSlots) {
    const uint64_t needed = posted_ - kSlots + 1;
    if (completed_ < needed) wait(needed - 1);
    const bool known = std::all_of(peers_completed_.begin(), peers_completed_.end(),
                                   [&](uint64_t c) { return c >= needed; });
    if (!known) {
      SlotGoal goal(*this, needed);
      wait_for(goal);
    }
  }
  return calls_[posted_ % kSlots];
}

void SharedGroup::wait(uint64_t sequence) {
  claim();
  if (completed_ > sequence) return;
  check_broken();
  CollectiveGoal goal(*this, sequence);
  wait_for(goal);
}

bool SharedGroup::poll(uint64_t sequence) {
  claim();
  if (completed_ > sequence || !broken_.empty()) return true;
  CollectiveGoal goal(*this, sequence);
  return poll_goal(goal);
}

// Moves the collectives on, oldest first, until one must wait for a rank.
int SharedGroup::progress() {
  if (!transfers_.pending.empty()) move_exchanges();
  while (completed_ < posted_) {
    Call& call = calls_[completed_ % kSlots];
    blocked_on_ = move(call);
    if (blocked_on_ != kDone) return blocked_on_;
    complete(call);
  }
  return kDone;
}

int SharedGroup::move(Call& call) {
  if (call.path == Call::Path::kUndecided) {
    const int missing = check_arrivals(call);
    if (missing != kDone) return missing;
    choose_path(call);
  }
  switch (call.path) {
    case Call::Path::kInline:
      run_inline(call);
      return kDone;
    case Call::Path::kDirect:
      if (!call.worked) {
        if (call.op == Op::kJointWork && spec_.siblings->holds_joint_work())
          return rank_;
        run_direct(call);
        call.worked = true;
        touch();
        mine_->done.store(completed_ + 1);
        ring();
      }
      return first_behind(&Status::done, completed_ + 1);
    default:
      return move_staged(call);
  }
}

void SharedGroup::choose_path(Call& call) {
  using Path = Call::Path;
  if (call.op == Op::kAllToAll) check_counts(call);
  const auto is_placed = [&](int r) { return addresses_[r] != 0; };
  switch (call.op) {
    case Op::kJointWork:
      call.path = Path::kDirect;
      return;
    case Op::kMapPeers:
      for (int r = 0; r < size_ && call.numel > 0; ++r) {
        if (!is_placed(r)) {
          fail(text(describe(call.print()), ": the tensor of rank ", r,
                    " does not come from allocate()"));
        }
      }
      call.path = Path::kDirect;
      return;
    case Op::kBroadcast:
      call.path = call.source_bytes <= kInlineBytes ? Path::kInline
                  : is_placed(call.root)            ? Path::kDirect
                                                    : Path::kStaged;
      break;
    case Op::kAllToAll: {
      int64_t most = 0;
      bool placed = true;
      const auto width = static_cast<int64_t>(c10::elementSize(call.dtype));
      for (int r = 0; r < size_; ++r) {
        const int64_t* counts = counts_of(r, completed_);
        int64_t bytes = 0;
        for (int to = 0; to < size_; ++to) bytes += counts[to] * width;
        most = std::max(most, bytes);
        placed = placed && (bytes == 0 || is_placed(r));
      }
      call.path = most <= kInlineBytes ? Path::kInline
                  : placed             ? Path::kDirect
                                       : Path::kStaged;
      break;
    }
    default: {
      bool placed = true;
      for (int r = 0; r < size_; ++r) placed = placed && is_placed(r);
      call.path = call.source_bytes <= kInlineBytes ? Path::kInline
                  : placed                          ? Path::kDirect
                                                    : Path::kStaged;
    }
  }
  if (call.path == Path::kStaged) call.rounds = count_rounds(call);
}

void SharedGroup::complete(Call& call) {
  if (call.copy_to.defined()) copy_into(call.copy_to, call.out);
  if (call.path == Call::Path::kStaged) round_base_ += call.rounds;
  call.in = Tensor();
  call.out = Tensor();
  call.copy_to = Tensor();
  call.work = nullptr;
  call.path = Call::Path::kUndecided;
  call.worked = false;
  call.filled = call.taken = call.copied = 0;
  std::fill(seen_.begin(), seen_.end(), 0);
  ++completed_;
  settle();
  touch();
  mine_->completed.store(completed_);
  ring();
}

std::vector<int> SharedGroup::missing_ranks() {
  const Call& call = calls_[completed_ % kSlots];
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Status& theirs = status(r);
    bool behind = false;
    if (call.path == Call::Path::kUndecided) {
      behind = !seen_[r];
    } else if (call.path == Call::Path::kDirect) {
      behind = theirs.done.load() < completed_ + 1;
    } else {
      behind = theirs.filled.load() < round_base_ + call.taken + 1 ||
               theirs.taken.load() + 1 < round_base_ + call.filled ||
               theirs.taken.load() < round_base_ + call.copied + 1;
    }
    if (behind) ranks.push_back(r);
  }
  return ranks;
}

// Every rank looks at all pairs, so that all refuse the same.
void SharedGroup::check_counts(const Call& call) {
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      const int64_t sent = counts_of(from, completed_)[to];
      const int64_t awaited = counts_of(to, completed_)[size_ + from];
      if (sent == awaited) continue;
      fail(text("all_to_all: rank ", to, " expects ", awaited, " elements from rank ",
                from, ", which sends ", sent, " (collective ", completed_, ")"));
    }
  }
}

int SharedGroup::first_behind(std::atomic<uint64_t> Status::*counter, uint64_t value) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && (status(r).*counter).load() < value) return r;
  }
  return kDone;
}

}  // namespace cohort::shared_memory
