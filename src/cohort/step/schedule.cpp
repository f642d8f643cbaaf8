// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/schedule.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/step/buckets.h"

namespace cohort {
namespace {

constexpr std::array<std::string_view, kActionKinds> kNames = {
    "Forward",       "Backward",    "BackwardWeight", "Recompute", "Gather",
    "Free",          "Reduce",      "ReduceScatter",  "Mirror",    "AllToAll",
    "Broadcast",     "Send",        "Recv",           "Norm",      "Vote",
    "Update",        "FoldBuffers", "Commit",         "Snapshot",  "Load",
    "BackwardInput", "ReduceUpdate"};

constexpr std::array<std::string_view, kBufferKinds> kBufferNames = {
    "slot",          "gathered",      "received",   "whole",  "master", "travelling",
    "moment",        "leaf",          "partial",    "sum",    "stack",  "nodes",
    "mirror_master", "mirror_moment", "mirror_sum", "unknown"};

constexpr std::array<std::string_view, kBufferMemories> kMemoryNames = {"host",
                                                                        "device"};

constexpr std::array<std::string_view, InnerCall::kOps> kCallNames = {
    "AllReduce", "AllGather", "ReduceScatter", "AllToAll"};

void write_action(std::ostream& out, int index, const Action& action) {
  out << index << ' ' << name_of(action.kind) << " lane " << action.lane;
  if (action.block != kNone) out << " block " << action.block;
  if (action.slice != kNone) out << " slice " << action.slice;
  const auto list = [&](const char* what, const std::vector<int>& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i)
      out << (i == 0 ? what : ",") << numbers[i];
  };
  list(" bucket ", action.buckets);
  if (action.bytes != 0) out << " bytes " << action.bytes;
  list(" after ", action.waits);
  list(" after the last step's ", action.waits_before);
  if (action.batch != kNone) out << " batch " << action.batch;
  for (const auto& call : action.calls)
    out << " calls " << call.group << ':' << name_of(call.op) << ':' << call.bytes;
  out << '\n';
}

}  // namespace

std::string_view name_of(ActionKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string_view name_of(CallOp op) { return kCallNames[static_cast<size_t>(op)]; }

std::string_view name_of(Buffer::Memory memory) {
  return kMemoryNames[static_cast<size_t>(memory)];
}

std::string_view name_of(Buffer::Holds holds) {
  return kBufferNames[static_cast<size_t>(holds)];
}

const Role& Schedule::role_of(int rank) const {
  for (const auto& role : roles)
    if (std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end())
      return role;
  throw BugError(::cohort::text("[step] no role for rank ", rank, " of ", world()));
}

int Schedule::size_of(const Group& group) const {
  const int all = mesh.size(group.axes);
  if (group.places.empty()) return all;
  return all / mesh.size(Axis::kPipe) * static_cast<int>(group.places.size());
}

int64_t Schedule::shard_of(int bucket) const {
  return buckets[bucket].numel / mesh.size(buckets[bucket].cut);
}

std::vector<int> Schedule::members(const Group& group, int rank) const {
  std::vector<int> members = mesh.members(rank, group.axes);
  if (group.places.empty()) return members;
  std::erase_if(members, [&](int member) {
    const int place = mesh.coordinate(member, Axis::kPipe);
    return std::find(group.places.begin(), group.places.end(), place) ==
           group.places.end();
  });
  const bool is_one = std::find(members.begin(), members.end(), rank) != members.end();
  return is_one ? members : std::vector<int>();
}

int Schedule::group_along(AxisSet axes) const {
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].axes == axes && groups[g].places.empty()) return static_cast<int>(g);
  return kNone;
}

const Group* Schedule::group_of(int lane) const {
  if (lane < 0 || lane >= lanes() || channels[lane].kind != Channel::Kind::kGroup)
    return nullptr;
  return &groups[channels[lane].group];
}

bool Schedule::is_copy(int lane) const {
  return lane >= 0 && lane < lanes() && channels[lane].kind == Channel::Kind::kCopy;
}

std::string Schedule::name_of_lane(int lane) const {
  const Channel& channel = channels[lane];
  switch (channel.kind) {
    case Channel::Kind::kCompute:
      return "compute";
    case Channel::Kind::kGroup:
      return groups[channel.group].name;
    case Channel::Kind::kLink:
      return ::cohort::text(channel.from, ">", channel.to);
    case Channel::Kind::kCopy:
      break;
  }
  return "copies";
}

std::vector<Channel> channels_for(const std::vector<Group>& groups) {
  std::vector<Channel> channels = {{.kind = Channel::Kind::kCompute}};
  for (size_t g = 0; g < groups.size(); ++g)
    channels.push_back({.kind = Channel::Kind::kGroup, .group = static_cast<int>(g)});
  channels.push_back({.kind = Channel::Kind::kCopy});
  return channels;
}

std::string Schedule::text() const {
  std::ostringstream out;
  out << "world " << world() << " slices " << slices << " shard " << shard
      << (exact ? " exact" : "") << (elastic ? " elastic" : "") << ' '
      << precision.compute << ' ' << precision.reduce << ' ' << precision.accumulate
      << '\n';
  for (const auto& group : groups)
    out << "group " << group.name << ' ' << size_of(group) << " x "
        << stride_of(*this, group) << '\n';
  for (const auto& bucket : buckets) {
    out << "bucket " << bucket.numel << (bucket.trained ? "" : " frozen") << " of";
    for (int block : bucket.blocks) out << ' ' << block;
    out << '\n';
  }
  for (const auto& stage : stages) {
    out << "stage at " << stage.place << " of";
    for (int block : stage.blocks) out << ' ' << block;
    out << '\n';
  }
  for (const auto& role : roles) {
    out << "role of";
    for (int rank : role.ranks) out << ' ' << rank;
    out << '\n';
    for (size_t i = 0; i < role.actions.size(); ++i)
      write_action(out, static_cast<int>(i), role.actions[i]);
  }
  return out.str();
}

uint64_t Schedule::hash() const {
  const std::string written = text();
  return hash64(written);
}

int stride_of(const Schedule& schedule, const Group& group) {
  return schedule.mesh.stride(group.axes.has(Axis::kCut) ? Axis::kCut
                                                         : Axis::kReplicate);
}

bool has_mirrors(const Schedule& schedule) {
  return std::any_of(schedule.groups.begin(), schedule.groups.end(),
                     [](const Group& group) { return group.mirrors; });
}

Axis mirror_axis(const Schedule& schedule) {
  for (const Axis axis : {Axis::kCut, Axis::kPipe})
    if (schedule.mesh.size(axis) > 1) return axis;
  return Axis::kTensor;
}

bool mirrors(const Schedule& schedule, int rank, int bucket) {
  const int before = schedule.mesh.coordinate_beside(rank, Axis::kPipe, -1);
  return has_mirrors(schedule) && mirror_axis(schedule) == Axis::kPipe &&
         is_mirrored(schedule, bucket) &&
         schedule.place_of(schedule.buckets[bucket]) == before;
}

int Schedule::place_of_block(int block) const {
  for (const auto& stage : stages)
    if (std::find(stage.blocks.begin(), stage.blocks.end(), block) !=
        stage.blocks.end())
      return stage.place;
  return 0;
}

bool updates_at_once(const Role& role) {
  return std::any_of(role.actions.begin(), role.actions.end(), [](const Action& a) {
    return a.kind == ActionKind::kReduceUpdate;
  });
}

std::vector<bool> recomputed_blocks(const Role& role, size_t blocks) {
  std::vector<bool> recomputed(blocks, false);
  for (const auto& action : role.actions)
    if (action.kind == ActionKind::kRecompute) recomputed[action.block] = true;
  return recomputed;
}

}  // namespace cohort
