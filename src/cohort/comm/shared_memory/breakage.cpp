// SPDX-License-Identifier: Apache-2.0
// How a group breaks, and what becomes of memory that peers may still work in.
#include <algorithm>
#include <cstring>

#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kLookAgain = 50ms;  // for a peer that was killed in its work
constexpr Nanoseconds kReasonIsWritten = 1s;

// Why the group of `control` was aborted. It takes no time to write that down, unless
// the one that does is killed over it.
std::string reason_in(const Control& control) {
  const Nanoseconds end = now() + kReasonIsWritten;
  while (control.abort.load() == Control::kWriting) {
    if (now() > end) return "aborted by a rank that ended before it could say why";
    relax();
  }
  return control.reason;
}

}  // namespace

void SharedGroup::check_usable() {
  claim();
  check_broken();
  check_abort();
}

void SharedGroup::check_broken() {
  if (!broken_.empty()) throw CommError(broken_);
}

bool SharedGroup::is_aborted() const {
  return control_->abort.load() != Control::kNone ||
         world_control_->abort.load() != Control::kNone;
}

void SharedGroup::check_abort() {
  if (!is_aborted()) [[likely]] {
    return;
  }
  const bool own = control_->abort.load() != Control::kNone;
  broken_ = prefix() + reason_in(own ? *control_ : *world_control_);
  quiesce();
  throw CommError(broken_);
}

void SharedGroup::abort(std::string_view reason) {
  break_group(text("aborted by rank ", rank_, ": ", reason));
}

// False when the group was broken already.
bool SharedGroup::break_group(std::string_view reason) {
  uint32_t none = Control::kNone;
  if (!control_->abort.compare_exchange_strong(none, Control::kWriting)) return false;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(control_->reason, reason.data(), length);
  control_->reason[length] = '\0';
  control_->abort_rank = rank_;
  control_->abort.store(Control::kAborted);
  for (int r = 0; r < size_; ++r) ring_bell(*progress_of_[r]);
  return true;
}

void SharedGroup::fail(const std::string& what) {
  broken_ = prefix() + what;
  break_group(text(what, " (seen by rank ", rank_, ")"));
  quiesce();
  throw CommError(broken_);
}

// The caller may use and free its tensors once it has the error: peers that work in
// them finish first, and those that come later see that the group is broken. Where a
// peer is stopped in the middle of it for longer than the timeout, the memory is kept
// from being used again instead; that can be done only with memory of our own. By the
// machine's clock: such peers are not late, they work.
void SharedGroup::quiesce() {
  if (!counted_) return;  // nobody works for a call that is over
  const Nanoseconds end = now() + spec_.timeout;
  std::atomic<uint32_t>& own = progress_of_[rank_]->bell;
  for (int r = 0; r < size_; ++r) {
    while (is_touching(r)) {
      if (memory().owns_what_peers_see() && now() >= end) return keep_memory();
      const Announcement announced({{&status(r), rank_}});
      const uint32_t bell = own.load();
      if (is_touching(r)) sleep_on(own, bell, std::min(kLookAgain, spec_.timeout));
    }
  }
}

bool SharedGroup::is_touching(int peer) {
  return peer != rank_ && status(peer).busy.load() != 0 &&
         !memory().is_gone(spec_.world_ranks[peer]);
}

void SharedGroup::show(const Tensor& tensor) {
  std::erase_if(shown_, [](const auto& storage) { return storage.expired(); });
  shown_.emplace_back(tensor.storage().getWeakStorageImpl());
}

// All that a peer may have been told of, until those that work now have ended.
void SharedGroup::keep_memory() {
  std::vector<Tensor> tensors;
  for (uint64_t i = completed_; i < posted_; ++i) {
    tensors.push_back(calls_[i % kSlots].in);
    tensors.push_back(calls_[i % kSlots].out);
  }
  for (const auto& transfer : transfers_.pending) tensors.push_back(transfer.tensor);
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages;
  for (const auto& shown : shown_) storages.push_back(shown.lock());
  std::vector<std::pair<const Status*, int>> writers;
  for (int r = 0; r < size_; ++r)
    if (is_touching(r)) writers.emplace_back(&status(r), spec_.world_ranks[r]);
  const auto kept =
      std::make_shared<decltype(std::pair(tensors, storages))>(tensors, storages);
  memory().keep(kept, [writers, memory = &memory()] {
    return std::all_of(writers.begin(), writers.end(), [&](const auto& writer) {
      return writer.first->busy.load() == 0 || memory->is_gone(writer.second);
    });
  });
}

}  // namespace cohort::shared_memory
