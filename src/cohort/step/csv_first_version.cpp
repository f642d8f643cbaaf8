// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/csv_first_version.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/csv_columns.h"

namespace cohort::csv {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;

enum class Part { kActivations, kParameters, kScratch, kGradients };

// A Gather that gives back itself what it took had a copy to send.
Part taken_for(const Action& action, const OldMemory& memory) {
  if (action.block != kNone && action.kind != ActionKind::kBackward)
    return Part::kActivations;
  if (action.kind == ActionKind::kGather)
    return memory.frees > 0 ? Part::kScratch : Part::kParameters;
  return Part::kGradients;
}

Part freed_of(const Action& action) {
  if (action.block != kNone) return Part::kActivations;
  if (action.kind == ActionKind::kFree) return Part::kParameters;
  return action.kind == ActionKind::kGather ? Part::kScratch : Part::kGradients;
}

class RoleMemory {
 public:
  RoleMemory(Schedule& schedule, int role) : schedule_(schedule), role_(role) {}

  void add(int index, const OldMemory& memory) {
    Action& action = schedule_.roles[role_].actions[index];
    if (action.kind == ActionKind::kCommit) {
      state = memory.takes;
      return;
    }
    const Part part = taken_for(action, memory);
    live(part) += memory.takes;
    if (live(part) > kMostBytes / 2) refuse(index, "holds too many bytes");
    if (part == Part::kActivations) give(action, memory.takes);
    if (part == Part::kScratch) action.scratch += memory.takes;
    parameters = std::max(parameters, live(Part::kParameters));
    gradients = std::max(gradients, live(Part::kGradients));
    live(freed_of(action)) -= memory.frees;
    if (live(freed_of(action)) < 0)
      refuse(index, text("gives back ", memory.frees, " bytes; legal: what was taken"));
  }

  void finish() const {
    int64_t left = 0;
    for (const int64_t bytes : live_) left += bytes;
    if (left != 0)
      refuse(static_cast<int>(schedule_.roles[role_].actions.size()) - 1,
             text(left, " bytes were taken and not given back; legal: 0"));
  }

  int64_t state = 0, parameters = 0, gradients = 0;

 private:
  int64_t& live(Part part) { return live_[static_cast<size_t>(part)]; }

  // What a forward keeps goes with its flight, or with its output where there is none.
  static void give(Action& action, int64_t bytes) {
    Access* keeps = nullptr;
    for (auto& access : action.writes)
      if (access.value.what == What::kFlight ||
          (access.value.what == What::kAct && !keeps))
        keeps = &access;
    if (keeps) keeps->bytes = bytes;
  }

  [[noreturn]] void refuse(int action, const std::string& why) const {
    refuse_role(schedule_, role_, action, why);
  }

  Schedule& schedule_;
  int role_;
  std::array<int64_t, 4> live_{};
};

// A hybrid run cuts the world twice: its shards are neighbours, its copies lie apart.
Mesh mesh_of(int world, const std::vector<FileGroup>& groups) {
  int cut = world;
  for (const auto& group : groups)
    if (group.stride == 1 && group.size > 1 && world % group.size == 0)
      cut = std::min(cut, group.size);
  return Mesh(std::array<int, kAxes>{1, world / cut, cut, 1, 1});
}

std::string group_text(const Schedule& schedule, const Group& group) {
  return FileGroup{group.name, schedule.size_of(group), stride_of(schedule, group)}
      .text();
}

}  // namespace

std::optional<FileGroup> parse_group(const std::string& item) {
  const auto colon = item.find(':');
  const auto cross = item.find('x', colon == std::string::npos ? 0 : colon);
  if (colon == std::string::npos || colon == 0 || cross == std::string::npos)
    return std::nullopt;
  const auto size = try_parse_int(item.substr(colon + 1, cross - colon - 1));
  const auto stride = try_parse_int(item.substr(cross + 1));
  const std::string name = item.substr(0, colon);
  if (!is_group_name(name) || !size || !stride || *size < 1 || *stride < 1 ||
      *size > kMostRanks || *stride > kMostRanks)
    return std::nullopt;
  return FileGroup{name, static_cast<int>(*size), static_cast<int>(*stride)};
}

std::optional<FileGroup> place_groups(Schedule& schedule, int world,
                                      const std::vector<FileGroup>& groups) {
  schedule.mesh = mesh_of(world, groups);
  const AxisSet ways[] = {kDataAxes, {Axis::kCut}, {Axis::kReplicate}};
  for (const auto& group : groups) {
    const auto way = std::find_if(std::begin(ways), std::end(ways), [&](AxisSet axes) {
      return group_text(schedule, {group.name, axes}) == group.text();
    });
    if (way == std::end(ways)) return group;
    schedule.groups.push_back({group.name, *way});
  }
  schedule.channels = channels_for(schedule.groups);
  return std::nullopt;
}

void apply_memory(Schedule& schedule,
                  const std::vector<std::vector<OldMemory>>& memory) {
  int64_t state = 0, parameters = 0, gradients = 0;
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    RoleMemory role(schedule, static_cast<int>(r));
    for (size_t i = 0; i < memory[r].size(); ++i)
      role.add(static_cast<int>(i), memory[r][i]);
    role.finish();
    state = std::max(state, role.state);
    parameters = std::max(parameters, role.parameters);
    gradients = std::max(gradients, role.gradients);
  }
  const auto add = [&](Buffer::Holds holds, int64_t bytes) {
    if (bytes > 0) schedule.buffers.push_back({.holds = holds, .numel = bytes});
  };
  add(Buffer::Holds::kSlot, gradients);
  add(Buffer::Holds::kGathered, parameters);
  add(Buffer::Holds::kUnknown, state);
}

}  // namespace cohort::csv
