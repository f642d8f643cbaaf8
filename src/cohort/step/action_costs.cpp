// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/action_costs.h"

#include <algorithm>
#include <map>

#include "cohort/core/error.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

const std::string kAllLinks = "pp";

bool group_crosses_nodes(const Schedule& schedule, const Group& group, int per_node) {
  std::map<int, int> nodes;  // by the first rank of each group: the node of a member
  for (int rank = 0; rank < schedule.world(); ++rank) {
    if (!group.places.empty() && schedule.members(group, rank).empty()) continue;
    const int node = rank / per_node;
    const int first = schedule.mesh.first(rank, group.axes);
    if (nodes.try_emplace(first, node).first->second != node) return true;
  }
  return false;
}

bool link_crosses_nodes(const Schedule& schedule, const Channel& link, int per_node) {
  const int places = schedule.mesh.size(Axis::kPipe);
  if (link.from < 0 || link.to < 0 || link.from >= places || link.to >= places)
    return false;
  for (int rank = 0; rank < schedule.world(); ++rank) {
    if (schedule.mesh.coordinate(rank, Axis::kPipe) != link.from) continue;
    const int other = schedule.mesh.with(rank, Axis::kPipe, link.to);
    if (rank / per_node != other / per_node) return true;
  }
  return false;
}

// What of a bucket's state kernels of a device reach in the host's memory.
double bytes_on_host(const Schedule& schedule, int bucket) {
  double bytes = 0;
  if (schedule.computes_in == Buffer::Memory::kHost) return bytes;
  for (const auto& buffer : schedule.buffers)
    if (buffer.bucket == bucket && buffer.memory == Buffer::Memory::kHost)
      bytes += static_cast<double>(buffer.bytes());
  return bytes;
}

}  // namespace

ActionCosts::ActionCosts(const Schedule& schedule, const CostTable& costs)
    : schedule_(schedule), costs_(costs), lanes_(schedule.channels.size()) {
  const int per_node =
      costs.ranks_per_node > 0 ? costs.ranks_per_node : std::max(schedule.world(), 1);
  for (const auto& group : schedule.groups)
    groups_.push_back({{group.name}, group_crosses_nodes(schedule, group, per_node)});
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b) {
    on_host_.push_back(bytes_on_host(schedule, b));
    const Buffer* const shard = gathered_shard(schedule, b);
    const bool from_host = gathers_from_host(schedule, b);
    gathered_.push_back(from_host ? static_cast<double>(shard->bytes()) : 0);
  }
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Channel& channel = schedule.channels[lane];
    if (channel.kind == Channel::Kind::kGroup)
      lanes_[lane] = groups_[channel.group];
    else if (channel.kind == Channel::Kind::kLink)
      lanes_[lane] = {{schedule.name_of_lane(lane), kAllLinks},
                      link_crosses_nodes(schedule, channel, per_node)};
  }
}

bool ActionCosts::hidden(int lane) const { return costs_.hidden(lanes_[lane]); }

const LinkCost* ActionCosts::find(const Action& action) const {
  const bool recv = action.kind == ActionKind::kRecv;
  return costs_.find(lanes_[action.lane],
                     name_of(recv ? ActionKind::kSend : action.kind));
}

const LinkCost* ActionCosts::find(const InnerCall& call) const {
  return costs_.find(groups_[call.group], name_of(call.op));
}

double ActionCosts::seconds(const InnerCall& call) const {
  const int ranks = schedule_.size_of(schedule_.groups[call.group]);
  const LinkCost* const cost = find(call);
  if (!cost || ranks < 2) return 0;
  return cost->seconds(static_cast<double>(call.bytes) * ring_factor(call.op, ranks));
}

double ActionCosts::block_seconds(const Action& action) const {
  const auto index = static_cast<size_t>(action.block);
  if (action.block < 0 || index >= costs_.blocks.size()) return 0;
  const BlockCost& block = costs_.blocks[index];
  switch (action.kind) {
    case ActionKind::kForward:
      return block.forward.seconds(costs_.samples);
    case ActionKind::kBackward:
      return block.backward.seconds(costs_.samples);
    case ActionKind::kBackwardInput:
      return block.input().seconds(costs_.samples);
    case ActionKind::kBackwardWeight:
      return block.weight().seconds(costs_.samples);
    default:
      return block.recompute.seconds(costs_.samples);
  }
}

double ActionCosts::seconds(const Action& action) const {
  const auto bytes = static_cast<double>(action.bytes);
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight:
    case ActionKind::kRecompute:
      return block_seconds(action);
    case ActionKind::kUpdate:
      return std::max(costs_.update.seconds(bytes), bus_seconds(action, on_host_));
    case ActionKind::kFree:
      return costs_.free.seconds(costs_.samples);
    case ActionKind::kCommit:
      return costs_.commit.seconds(costs_.samples);
    default:
      break;
  }
  if (schedule_.is_copy(action.lane)) return costs_.copy.seconds(bytes);
  if (action.lane == kComputeLane) return 0;
  const LinkCost* const cost = find(action);
  if (!cost) return 0;
  const Group* const group = schedule_.group_of(action.lane);
  const int ranks = group ? schedule_.size_of(*group) : 2;
  const double brought =
      action.kind == ActionKind::kGather ? bus_seconds(action, gathered_) : 0;
  return brought + cost->seconds(bytes * ring_factor(action.kind, ranks));
}

// An update reads as much of the host's memory as it writes, and a bus carries both at
// once.
double ActionCosts::bus_seconds(const Action& action,
                                const std::vector<double>& bytes) const {
  const auto bucket = static_cast<size_t>(action.buckets[0]);
  if (bucket >= bytes.size() || bytes[bucket] == 0) return 0;
  return costs_.copy.seconds(bytes[bucket]);
}

void require_costs_of(const Schedule& schedule, const CostTable& costs) {
  const ActionCosts rows(schedule, costs);
  const auto refuse = [](std::string_view call, const std::string& where,
                         const std::string& legal) {
    throw ConfigError(text("[step.costs] no row for ", call, " ", where,
                           "; legal: a row link,", legal, " or link,*"));
  };
  int most = -1;
  for (const auto& role : schedule.roles) {
    for (const auto& action : role.actions) {
      most = std::max(most, action.block);
      for (const auto& call : action.calls) {
        const std::string& group = schedule.groups[call.group].name;
        if (!rows.find(call)) refuse(name_of(call.op), "of group " + group, group);
      }
      const Channel::Kind kind = schedule.channels[action.lane].kind;
      const bool group = kind == Channel::Kind::kGroup;
      if ((!group && kind != Channel::Kind::kLink) || rows.find(action)) continue;
      const std::string lane = schedule.name_of_lane(action.lane);
      refuse(name_of(action.kind), (group ? "of group " : "on link ") + lane,
             group ? lane : lane + " or link," + kAllLinks);
    }
  }
  if (static_cast<size_t>(most + 1) != costs.blocks.size())
    throw ConfigError(text("[step.costs] ", costs.blocks.size(),
                           " blocks; legal: those of the step, which has ", most + 1));
}

}  // namespace cohort
