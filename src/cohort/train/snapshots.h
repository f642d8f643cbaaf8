// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/train/page_holder.h"
#include "cohort/train/snapshot_pages.h"

namespace cohort {

// The snapshots that somebody keeps, of all ranks of all worlds so far.
class SnapshotSet {
 public:
  explicit SnapshotSet(std::vector<std::shared_ptr<SnapshotPages>> pages);

  // Those of which every rank's part is there and complete, newest step first.
  std::vector<SnapshotTitle> whole() const;
  RunState run(const SnapshotTitle& title) const;
  // Fills the data of pieces, however they are cut now. Returns what is not there, or
  // not what was taken, as one line; then some of the pieces may have changed. No rank
  // waits for another.
  [[nodiscard]] std::string fill(const SnapshotTitle& title,
                                 std::span<const StatePiece> pieces) const;

 private:
  using Parts = std::map<int, std::shared_ptr<SnapshotPages>>;  // by rank
  const Parts* find(const SnapshotTitle& title) const;

  std::vector<std::pair<SnapshotTitle, Parts>> states_;
};

// Takes the snapshots of one rank, into a few pieces of memory in turn. The newest that
// is complete on all ranks is never overwritten, nor is one that is being read.
//
// begin() at the start of each world, before anyone has taken a step in it; take()
// after a commit, on all ranks. A commit between two of them is what tells that the
// first is complete everywhere. Thread safety: none.
class Snapshots {
 public:
  // `holder` may be null: pages then end with this process.
  Snapshots(PageHolder* holder, int slots) : holder_(holder), slots_(slots) {}
  ~Snapshots();

  void begin(const SnapshotTitle& who, std::span<const StatePiece> pieces);
  // What this world's slots need, and what there is of them.
  int64_t wanted_bytes() const;
  int64_t held_bytes() const;
  // Gets the memory, and makes its pages real in the background.
  void warm_up();

  // One memory copy. Null if every slot is in use.
  std::shared_ptr<SnapshotPages> take(const RunState& run,
                                      std::span<const StatePiece> pieces);

  // The snapshot of that step is not overwritten, until another is pinned.
  void pin(int64_t step) { pinned_ = step; }

  // Lets go of what this rank has of later steps.
  void forget_after(int64_t step);

  // All that the holder has now.
  SnapshotSet found() const;

 private:
  std::string name(int slot) const;
  void adopt();
  int choose() const;
  void renew(int slot);
  void let_go_of_lost_ranks();
  void stop_warming();

  PageHolder* holder_;
  std::vector<std::shared_ptr<SnapshotPages>> slots_;
  SnapshotTitle who_{.rank = -1};
  SnapshotPlan plan_;
  int64_t pinned_ = -1;                // step
  std::optional<SnapshotTitle> safe_;  // complete on all ranks
  std::optional<SnapshotTitle> last_;  // taken here, in this world
  bool tidied_ = false;                // this world's lost ranks have no pages left
  std::thread warming_;
  std::atomic<bool> enough_{false};
};

}  // namespace cohort
