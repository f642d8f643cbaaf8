// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/rank_groups.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/engine/matchings.h"

namespace cohort {
namespace {

// By any role: all ranks make the same communicators.
std::set<int> groups_with_calls(const Schedule& schedule) {
  std::set<int> groups;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      for (const auto& call : action.calls) groups.insert(call.group);
  return groups;
}

// Where along the pipeline a lane's ranks are, if not everywhere: the ends of a link,
// or the places that have a parameter together.
std::vector<int> places_of_lane(const Schedule& schedule, int lane) {
  const Channel& channel = schedule.channels[lane];
  if (channel.kind == Channel::Kind::kLink) return {channel.from, channel.to};
  const Group* const group = schedule.group_of(lane);
  return group ? group->places : std::vector<int>();
}

// All such lanes. Those of one list share no place, so one split makes the groups of
// them all: as many calls in a deep pipeline as in a short one.
std::vector<std::vector<int>> disjoint_lanes(const Schedule& schedule) {
  std::vector<int> lanes;
  std::vector<std::vector<int>> places;
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    auto listed = places_of_lane(schedule, lane);
    if (listed.empty()) continue;
    lanes.push_back(lane);
    places.push_back(std::move(listed));
  }
  auto disjoint = matchings(places);
  for (auto& matching : disjoint)
    for (int& number : matching) number = lanes[number];
  return disjoint;
}

// The first of those that a rank meets in such a lane, which names them; -1: nobody.
int first_in_lane(const Schedule& schedule, int lane, int rank) {
  if (const Group* const group = schedule.group_of(lane)) {
    const auto members = schedule.members(*group, rank);
    return members.empty() ? -1 : members[0];
  }
  const Channel& link = schedule.channels[lane];
  const int here = schedule.mesh.coordinate(rank, Axis::kPipe);
  if (here != link.from && here != link.to) return -1;
  return schedule.mesh.with(rank, Axis::kPipe, link.from);
}

}  // namespace

RankChannels::RankChannels(const Schedule& schedule, Communicator& world)
    : schedule_(schedule), mesh_(schedule.mesh), world_(world) {
  groups_.world = &world;
  groups_.dp = groups_.shard = group(kDataAxes);
  groups_.alike = group(AxisSet{Axis::kPipe, Axis::kContext} | kDataAxes);
  groups_.part = mesh_.coordinate(world.rank(), Axis::kTensor);
  groups_.parts = mesh_.size(Axis::kTensor);
  if (mesh_.size(Axis::kReplicate) > 1) {
    groups_.shard = group({Axis::kCut});
    groups_.replicate = group({Axis::kReplicate});
  }
  for (const auto& lanes : disjoint_lanes(schedule)) {
    int mine = kNone, color = -1;
    for (const int lane : lanes) {
      const int first = first_in_lane(schedule, lane, world.rank());
      if (first >= 0) mine = lane, color = first;
    }
    auto part = world.split(color);
    if (part) (schedule.group_of(mine) ? tied_ : links_).emplace(mine, std::move(part));
  }
  for (const int g : groups_with_calls(schedule))
    inner_.emplace(g, world.split(mesh_.first(world.rank(), schedule.groups[g].axes)));
}

void RankChannels::leave_blocks() {
  for (const auto& entry : inner_) entry.second->abort("it has left the step");
}

Communicator* RankChannels::inner(AxisSet axes) const {
  if (mesh_.size(axes) == 1) return nullptr;
  const auto found = inner_.find(schedule_.group_along(axes));
  COHORT_CHECK(found != inner_.end(), "the schedule has no calls inside blocks there");
  return found->second.get();
}

// The world itself, where no axis is missing.
Communicator* RankChannels::group(AxisSet axes) {
  if (mesh_.size(axes) == world_.size()) return &world_;
  parts_.push_back(world_.split(mesh_.first(world_.rank(), axes)));
  return parts_.back().get();
}

void RankChannels::connect(at::Device device) const {
  const auto bytes = at::TensorOptions(at::kByte).device(device);
  const auto meet = [&](Communicator& group) {
    Tensor out = at::zeros({group.size()}, bytes);
    group.all_to_all(out, at::zeros({group.size()}, bytes)).wait();
  };
  const auto greet = [&](Communicator& pair) {
    const int peer = 1 - pair.rank();
    const Transfer word{peer, at::zeros({1}, bytes)};
    const bool sends = peer == 1;
    pair.exchange(std::span(&word, sends ? 1 : 0), std::span(&word, sends ? 0 : 1))
        .wait();
  };
  meet(world_);
  for (const auto& part : parts_) meet(*part);
  // In the order in which they were made: pairs meet side by side, where by lane each
  // would wait for the one before it along the pipeline.
  for (const auto& lanes : disjoint_lanes(schedule_))
    for (const int lane : lanes) {
      if (tied_.contains(lane)) meet(*tied_.at(lane));
      if (links_.contains(lane)) greet(*links_.at(lane));
    }
}

RankChannels::Link RankChannels::link(int lane) const {
  Communicator* const pair = links_.at(lane).get();
  return {pair, 1 - pair->rank()};
}

}  // namespace cohort
