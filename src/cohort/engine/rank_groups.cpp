// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/rank_groups.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "cohort/core/error.h"

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
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Channel& channel = schedule.channels[lane];
    if (channel.kind != Channel::Kind::kLink) continue;
    const int here = mesh_.coordinate(world.rank(), Axis::kPipe);
    const bool is_end = here == channel.from || here == channel.to;
    const int first = mesh_.with(world.rank(), Axis::kPipe, channel.from);
    if (auto pair = world.split(is_end ? first : -1))
      links_.emplace(lane, std::move(pair));
  }
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Group* const group = schedule.group_of(lane);
    if (!group || group->places.empty()) continue;
    const auto members = schedule.members(*group, world.rank());
    if (auto part = world.split(members.empty() ? -1 : members[0]))
      tied_.emplace(lane, std::move(part));
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
  meet(world_);
  for (const auto& part : parts_) meet(*part);
  for (const auto& [lane, part] : tied_) meet(*part);
  for (const auto& [lane, pair] : links_) {
    const int peer = 1 - pair->rank();
    const Transfer word{peer, at::zeros({1}, bytes)};
    const bool sends = peer == 1;
    pair->exchange(std::span(&word, sends ? 1 : 0), std::span(&word, sends ? 0 : 1))
        .wait();
  }
}

RankChannels::Link RankChannels::link(int lane) const {
  Communicator* const pair = links_.at(lane).get();
  return {pair, 1 - pair->rank()};
}

}  // namespace cohort
