// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace cohort {

// Ranks that hold one copy of a model between them, each a part of the tensors of a
// stage: a world has nothing but whole teams. Where a rank has the whole model, or a
// shard of what all data-parallel ranks hold, it is a team by itself.
struct Team {
  int stages = 1;
  int parts = 1;

  int ranks() const { return stages * parts; }
};

// Which rank takes which place in a world of `teams` teams: by place, its place in the
// world before, or -1: none that lives. `lives`: by place before, of whole teams.
//
// Teams that have lost nobody stay as they are, in their order, as far as there is room
// for them. So whatever else is lost, it was in teams that are broken up, and each
// shard of their state has its second copy in another team. The ranks that are left of
// those fill what places there are.
std::vector<int> seat(const std::vector<bool>& lives, int teams, const Team& team);

}  // namespace cohort
