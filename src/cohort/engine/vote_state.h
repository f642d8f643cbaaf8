// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// How far the last step came on this rank. Without an exception: kCommitted.
struct VoteState {
  enum class Phase {
    kBefore,     // this rank has not voted: nothing has changed, here or anywhere
    kVoted,      // it has, and does not know the result
    kDecided,    // it knows; whatever is missing it can do alone
    kCommitted,  // nothing is missing
  };
  Phase phase = Phase::kCommitted;
  bool against = false;  // its own vote; from kDecided on the result
};

}  // namespace cohort
