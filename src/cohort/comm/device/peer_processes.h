// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/communicator.h"
#include "cohort/core/unique_fd.h"

namespace cohort::device_comm {

// Which ranks of a world still live. A GPU that waits for a rank does not say that it
// is gone, or only much later. Ranks are watched where they share memory, which those
// of one node do; the host's group tells of the others.
class PeerProcesses {
 public:
  // Collective over the ranks of `host`.
  explicit PeerProcesses(Communicator& host);

  // The first rank whose process ended before it parted; -1: there is none.
  int lost() const;
  // Whether the process of that rank is no more, in whatever way it ended; false where
  // nobody can say.
  bool has_ended(int rank) const;
  // From now on the end of this rank is no loss. Its peers' pages are written, which
  // are there as long as `host` is.
  void part();

 private:
  bool has_parted(int rank) const;

  int rank_;
  Tensor page_;  // a word for each peer, which it sets when it parts
  std::vector<Tensor> pages_;
  std::vector<UniqueFd> processes_;  // none: this one, or one that cannot be watched
};

}  // namespace cohort::device_comm
