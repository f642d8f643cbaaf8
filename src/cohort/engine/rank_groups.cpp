// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/rank_groups.h"

#include <algorithm>

namespace cohort {

RankChannels::RankChannels(const Schedule& schedule, Communicator& world)
    : mesh_(schedule.mesh), world_(world) {
  groups_.world = &world;
  groups_.dp = groups_.shard = group(kDataAxes);
  if (mesh_.size(Axis::kReplicate) > 1) {
    groups_.shard = group({Axis::kCut});
    groups_.replicate = group({Axis::kReplicate});
  }
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Channel& channel = schedule.channels[lane];
    if (channel.kind != Channel::Kind::kLink) continue;
    const int here = mesh_.coordinate(world.rank(), Axis::kPipe);
    const bool is_end = here == channel.from || here == channel.to;
    const int first = mesh_.with(world.rank(), Axis::kPipe, channel.from);
    if (auto pair = world.split(is_end ? first : -1))
      links_.emplace(lane, std::move(pair));
  }
}

// The world itself, where no axis is missing.
Communicator* RankChannels::group(AxisSet axes) {
  if (mesh_.size(axes) == world_.size()) return &world_;
  parts_.push_back(world_.split(mesh_.first(world_.rank(), axes)));
  return parts_.back().get();
}

RankChannels::Link RankChannels::link(int lane) const {
  Communicator* const pair = links_.at(lane).get();
  return {pair, 1 - pair->rank()};
}

}  // namespace cohort
