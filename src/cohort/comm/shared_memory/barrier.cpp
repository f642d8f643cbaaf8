// SPDX-License-Identifier: Apache-2.0
// The barrier of shared memory: a rank arrives at a collective by post(), and finds in
// check_arrivals() whether all have.
#include <algorithm>

#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {

uint64_t SharedGroup::post(Call& call) {
  const uint64_t sequence = posted_++;
  Slot& slot = this->slot(rank_, sequence);
  slot.print.store(call.print());
  const bool needs_address = call.source_bytes > kInlineBytes || uses_places(call.op);
  slot.address =
      needs_address
          ? memory().address_of(call.source, static_cast<size_t>(call.source_bytes))
          : 0;
  slot.completed = completed_;
  write_payload(call, slot);
  mine_->posted.store(posted_, std::memory_order_relaxed);
  polled_.at = ~uint64_t{0};
  settle();
  touch();
  if (spec_.loses_message(sequence)) [[unlikely]]
    return sequence;
  slot.arrived.store(sequence + 1);
  ring();
  return sequence;
}

// Looks at every rank that was not there yet: a wrong call is refused at once, even
// while another rank is missing. This rank has come, whatever its peers see of it.
int SharedGroup::check_arrivals(Call& call) {
  int missing = kDone;
  for (int r = 0; r < size_; ++r) {
    if (seen_[r]) continue;
    const Slot& theirs = slot(r, completed_);
    if (r != rank_ && theirs.arrived.load() != completed_ + 1) {
      if (missing == kDone) missing = r;
      continue;
    }
    const Fingerprint print = theirs.print.load();
    if (print != call.print()) refuse(r, print, call);
    seen_[r] = 1;
    addresses_[r] = theirs.address;
    peers_completed_[r] = theirs.completed;
  }
  return missing;
}

void SharedGroup::refuse(int peer, const Fingerprint& theirs, const Call& call) {
  const Fingerprint mine = call.print();
  const int high = std::max(peer, rank_), low = std::min(peer, rank_);
  fail(text("rank ", high, " called ", describe(high == rank_ ? mine : theirs),
            " where rank ", low, " called ", describe(low == rank_ ? mine : theirs),
            " (collective ", completed_, ")"));
}

}  // namespace cohort::shared_memory
