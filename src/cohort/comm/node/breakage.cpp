// SPDX-License-Identifier: Apache-2.0
// How a group breaks.
#include <algorithm>
#include <cstring>

#include "cohort/comm/node/group.h"
#include "cohort/core/error.h"

namespace cohort::node {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kQuiesce = 1s;
constexpr Nanoseconds kReasonIsWritten = 1s;

// Why the group of `control` was aborted. It takes no time to write that down, unless
// the one who does is killed over it.
std::string reason_in(const Control& control) {
  const Nanoseconds end = now() + kReasonIsWritten;
  while (control.abort.load() == Control::kWriting) {
    if (now() > end) return "aborted by a rank that ended before it could say why";
    relax();
  }
  return control.reason;
}

}  // namespace

void Group::check_usable() {
  claim();
  check_broken();
  check_abort();
}

void Group::check_broken() {
  if (!broken_.empty()) throw CommError(broken_);
}

void Group::check_abort() {
  if (!is_aborted()) [[likely]] {
    return;
  }
  const bool own = control_->abort.load() != Control::kNone;
  broken_ = prefix() + reason_in(own ? *control_ : *world_control_);
  quiesce();
  throw CommError(broken_);
}

void Group::abort(std::string_view reason) {
  break_group(text("aborted by rank ", rank_, ": ", reason));
}

// False when the group was broken already.
bool Group::break_group(std::string_view reason) {
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

void Group::fail(const std::string& what) {
  broken_ = prefix() + what;
  break_group(text(what, " (seen by rank ", rank_, ")"));
  quiesce();
  throw CommError(broken_);
}

// The caller may free its tensors once it has the error: let peers that work on them
// finish. Those that start later see that the group is broken. By the machine's clock:
// they are not late, they work.
void Group::quiesce() {
  const Nanoseconds end = now() + kQuiesce;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    while (status(r).busy.load() != 0 && now() < end &&
           !memory().is_gone(spec_.world_ranks[r])) {
      relax();
    }
  }
}

}  // namespace cohort::node
