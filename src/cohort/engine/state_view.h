// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/replicas.h"
#include "cohort/engine/step_runner.h"
#include "cohort/update_rule.h"

namespace cohort {

// The state of a run as a whole: shown in pieces, hashed, and compared between the
// ranks that hold it. Borrows all it is given. Thread safety: none.
class StateView {
 public:
  // `at_once`: ranks update for one another, each its shard.
  StateView(const Chain& chain, const Schedule& schedule, const RankGroups& groups,
            const UpdateRule& rule, FlatState& state, bool at_once);

  // As in StepRunner.
  uint64_t weights_hash() const;
  std::vector<StatePiece> pieces(Holding which) const;
  void refresh();
  // Second copies alone, of all that ranks have.
  void refresh_mirrors();
  ReplicaReport compare_replicas() const;

 private:
  struct Copy;  // what other ranks hold too

  ShardRange owned_range(int bucket) const;
  std::vector<Copy> copies() const;
  int64_t part_number(const FlatParameter& place, int64_t begin, int part) const;
  void add_mirrored(const FlatParameter& place, std::vector<Copy>& all) const;
  void refresh_own(int bucket);
  void refresh_mirror(int bucket);

  const Chain& chain_;
  const Schedule& schedule_;
  const RankGroups& groups_;
  Communicator& comm_;  // the world
  const UpdateRule& rule_;
  FlatState& state_;
  bool at_once_;
};

}  // namespace cohort
