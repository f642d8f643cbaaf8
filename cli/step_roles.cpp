// SPDX-License-Identifier: Apache-2.0
#include "cli/step_roles.h"

#include <algorithm>
#include <numeric>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/table.h"
#include "cohort/step/checks/role_view.h"

namespace cohort::cli {
namespace {

int stage_of(const StepView& view, size_t role) {
  return view.schedule.mesh.coordinate(view.schedule.roles[role].ranks[0], Axis::kPipe);
}

std::vector<size_t> by_stage(const StepView& view) {
  std::vector<size_t> roles(view.schedule.roles.size());
  std::iota(roles.begin(), roles.end(), size_t{0});
  std::ranges::sort(roles, {},
                    [&](size_t r) { return view.schedule.roles[r].ranks.front(); });
  return roles;
}

}  // namespace

std::string format_roles(const StepView& view) {
  const bool stages = view.schedule.mesh.size(Axis::kPipe) > 1;
  Table rows = {{"ranks", "memory", "activations", "sent", "received", "by groups",
                 "inside blocks", "over links"}};
  if (stages) rows[0].insert(rows[0].begin(), "stage");
  const auto bytes = [](auto amount) {
    return format_bytes(static_cast<double>(amount));
  };
  for (const size_t r : by_stage(view)) {
    const RoleVolume& volume = view.report.volumes[r];
    const MemoryParts& parts = view.report.roles[r].parts;
    std::vector<std::string> row = {ranks_text(view.schedule.roles[r].ranks),
                                    bytes(parts.total()),
                                    bytes(parts.activations),
                                    bytes(volume.total().sent),
                                    bytes(volume.total().received),
                                    bytes(volume.groups.sent),
                                    bytes(volume.blocks.sent),
                                    bytes(volume.links.sent)};
    if (stages) row.insert(row.begin(), std::to_string(stage_of(view, r)));
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

RawJson roles_json(const StepView& view) {
  JsonArray rows;
  const auto whole = [](double bytes) { return static_cast<int64_t>(bytes); };
  for (const size_t r : by_stage(view)) {
    const RoleVolume& volume = view.report.volumes[r];
    const RolePeak& peak = view.report.roles[r];
    const auto sides = [&](const MovedBytes& way) {
      return JsonObject()
          .add("sent", whole(way.sent))
          .add("received", whole(way.received));
    };
    rows.add(JsonObject()
                 .add("stage", stage_of(view, r))
                 .add("ranks", ranks_text(view.schedule.roles[r].ranks))
                 .add("peak_memory_bytes", peak.parts.total())
                 .add("activations", peak.parts.activations)
                 .add("sent_bytes", whole(volume.total().sent))
                 .add("received_bytes", whole(volume.total().received))
                 .add("groups", sides(volume.groups))
                 .add("blocks", sides(volume.blocks))
                 .add("links", sides(volume.links)));
  }
  return {rows.text()};
}

}  // namespace cohort::cli
