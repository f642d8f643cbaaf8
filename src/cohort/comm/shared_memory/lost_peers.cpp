// SPDX-License-Identifier: Apache-2.0
// Where a rank that waits notices that a peer is dead, has left, or is too late.
#include <algorithm>

#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

// The one to blame for a late rank may be at the end of a chain of ranks that wait.
template <typename WaitsFor>
std::string waits_of(int rank, const WaitsFor& waits_for) {
  std::vector<int> chain = {rank};
  std::string said;
  while (const uint32_t next = waits_for(chain.back())) {
    const int r = static_cast<int>(next) - 1;
    said += text(said.empty() ? ", while it" : ", which", " waits for rank ", r);
    if (std::find(chain.begin(), chain.end(), r) != chain.end()) break;
    chain.push_back(r);
  }
  return said;
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

// A peer that is late counts from its own last sign of progress, in whichever group
// it showed one: a slow step is not a dead rank.
void SharedGroup::check_peers(Goal& goal, Nanoseconds since) {
  const Nanoseconds time = spec_.time();
  if (time < polled_.next_check) return;
  polled_.next_check = time + std::min(kCheckEvery, spec_.timeout);
  const std::vector<int> missing = goal.missing();
  for (const int peer : missing) {
    if (check_lost(goal, peer)) return;
  }
  const bool late = std::any_of(missing.begin(), missing.end(), [&](int peer) {
    const Nanoseconds stamp(progress_of_[peer]->stamp.load());
    return time > std::max(stamp, since) + spec_.timeout;
  });
  if (!late || goal.attempt() == kDone) return;
  std::string names;
  for (const int peer : missing)
    names += (names.empty() ? "" : "; ") + last_words(peer);
  fail(text("rank ", rank_, " waited ", seconds(time - since), " s for ", goal.what(),
            ", timeout ", seconds(spec_.timeout), " s: ", names));
}

// A peer may leave, or end, right after its last contribution: look again first.
bool SharedGroup::check_lost(Goal& goal, int peer) {
  const int world_rank = spec_.world_ranks[peer];
  const bool left = status(peer).left.load() != 0;
  const bool gone = memory().is_gone(world_rank);
  if (!left && !gone) return false;
  if (goal.attempt() == kDone) return true;
  const auto missing = goal.missing();
  if (std::find(missing.begin(), missing.end(), peer) == missing.end()) return true;
  const std::string what =
      gone ? text(" (pid ", memory().pid_of(world_rank), ") is gone")
           : std::string(" has left the group");
  fail(text("rank ", peer, what, ": rank ", rank_, " waits for ", goal.what(), "; ",
            last_words(peer)));
}

std::string SharedGroup::last_words(int peer) {
  const Nanoseconds stamp(progress_of_[peer]->stamp.load());
  const uint64_t posted = status(peer).posted.load();
  const std::string last =
      posted == 0
          ? std::string("it has called no collective")
          : text("its last call was ", describe(slot(peer, posted - 1).print.load()),
                 " (collective ", posted - 1, ")");
  const Nanoseconds ago = std::max(spec_.time() - stamp, Nanoseconds{});
  return text("rank ", peer, " is missing: ", last,
              stamp == Nanoseconds{}
                  ? std::string(" and made no progress yet")
                  : text(", its last progress ", seconds(ago), " s ago"),
              waits_of(peer, [&](int r) { return status(r).waits_for.load(); }));
}

}  // namespace cohort::shared_memory
