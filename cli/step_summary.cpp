// SPDX-License-Identifier: Apache-2.0
// What `cohort step` says of a step, for people and for programs.
#include <algorithm>
#include <map>
#include <set>

#include "cli/step_command.h"
#include "cli/step_roles.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/json.h"
#include "cohort/core/table.h"
#include "cohort/step/checks/role_view.h"

namespace cohort::cli {
namespace {

using ByKind = std::map<ActionKind, double>;

// The role whose ranks have most to do.
size_t busiest(const Schedule& schedule) {
  size_t found = 0;
  for (size_t r = 1; r < schedule.roles.size(); ++r)
    if (schedule.roles[r].slices > schedule.roles[found].slices) found = r;
  return found;
}

ByKind count_kinds(const Role& role) {
  ByKind counts;
  for (const auto& action : role.actions) ++counts[action.kind];
  return counts;
}

// Bytes a rank sends over the links of a ring, or copies to and from its host.
ByKind bytes_moved(const Schedule& schedule, const Role& role) {
  ByKind moved;
  for (const auto& action : role.actions) {
    if (action.lane == kComputeLane || action.bytes == 0) continue;
    const Group* const group = schedule.group_of(action.lane);
    const double factor =
        group ? ring_factor(action.kind, schedule.size_of(*group)) : 1;
    moved[action.kind] += factor * static_cast<double>(action.bytes);
  }
  return moved;
}

// Collectives inside blocks, and what a rank sends for them. Empty: there are none.
std::string inner_calls_text(const Schedule& schedule, const Role& role) {
  int count = 0;
  double bytes = 0;
  for (const auto& action : role.actions)
    for (const auto& call : action.calls) {
      const int ranks = schedule.size_of(schedule.groups[call.group]);
      bytes += ring_factor(call.op, ranks) * static_cast<double>(call.bytes);
      ++count;
    }
  if (count == 0) return "";
  return text(count, " inside blocks, ", format_bytes(bytes), " per rank and step");
}

double total(const ByKind& parts) {
  double sum = 0;
  for (const auto& [kind, part] : parts) sum += part;
  return sum;
}

template <typename Format>
std::string list(const ByKind& parts, Format&& format) {
  std::string out;
  for (const auto& [kind, part] : parts)
    out += text(out.empty() ? "" : ", ", name_of(kind), " ", format(part));
  return out;
}

std::string bytes_text(double bytes) { return format_bytes(bytes); }

std::string parts_text(const MemoryParts& parts) {
  std::string out = text("state ", format_bytes(static_cast<double>(parts.state)));
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes > 0)
      out += text(", ", name, " ", format_bytes(static_cast<double>(bytes)));
  };
  add("activations", parts.activations);
  add("gradients", parts.gradients);
  add("gathered parameters", parts.parameters);
  add("scratch", parts.scratch);
  return out;
}

std::string buckets_text(const Schedule& schedule) {
  std::set<int> updated;
  for (const auto& role : schedule.roles)
    updated.insert(role.actions.back().buckets.begin(),
                   role.actions.back().buckets.end());
  if (schedule.buckets.empty()) return text(updated.size(), " updated");
  double numel = 0;
  for (const auto& bucket : schedule.buckets)
    numel += static_cast<double>(bucket.numel);
  return text(schedule.buckets.size(), ", ", updated.size(), " updated, ",
              format_quantity(numel), " parameters with padding");
}

// Seconds of each kind per rank: the mean of all roles.
ByKind seconds_by_kind(const Schedule& schedule, const StepTimes& times) {
  ByKind seconds;
  const auto roles = static_cast<double>(schedule.roles.size());
  for (size_t r = 0; r < schedule.roles.size(); ++r)
    for (size_t i = 0; i < times[r].size(); ++i)
      seconds[schedule.roles[r].actions[i].kind] +=
          (times[r][i].end - times[r][i].begin) / roles;
  return seconds;
}

// Seconds in which a rank is in no action: the mean of all roles.
double idle_seconds(const Schedule& schedule, const StepTimes& times) {
  double idle = 0;
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const RoleUse use = use_of(schedule.roles[r], times[r]);
    idle += step_seconds({times[r]}) - (use.compute + use.communication - use.hidden);
  }
  return std::max(0.0, idle) / static_cast<double>(schedule.roles.size());
}

// The part of a step in which a rank computes nothing: the mean of all
// roles.
double idle_share(const Schedule& schedule, const StepTimes& times) {
  double computed = 0;
  for (size_t r = 0; r < schedule.roles.size(); ++r)
    computed += use_of(schedule.roles[r], times[r]).compute;
  const double step = step_seconds(times);
  return step > 0 ? 1 - computed / static_cast<double>(schedule.roles.size()) / step
                  : 0;
}

std::string percent_text(double share) { return format_fixed(100 * share, 1) + " %"; }

// As a user would give them, and the names that the model has for their blocks: a file
// may have none.
std::string stages_text(const Schedule& schedule) {
  std::string cut, names;
  for (const auto& stage : schedule.stages) {
    const int first = stage.blocks.front(), last = stage.blocks.back();
    cut += text(cut.empty() ? "" : ",", first, last > first ? text("-", last) : "");
    if (schedule.blocks.empty()) continue;
    names += names.empty() ? "" : " |";
    for (const int block : stage.blocks)
      names += text(names.empty() ? "" : " ", schedule.blocks[block]);
  }
  return text("pipeline.cut=", cut, names.empty() ? "" : ": ", names);
}

// What the schedule leaves idle at the ends of a step, where all stages cost the same,
// and each half of a backward as much as a forward. It waits while one stage computes
// a slice, or, with a backward in two parts, for a third of that time.
double ideal_idle_share(const Schedule& schedule) {
  const double places = schedule.mesh.size(Axis::kPipe);
  const double slices = schedule.mesh.rounds(schedule.slices);
  const double stages = std::max(places, static_cast<double>(schedule.stages.size()));
  const bool in_parts = std::ranges::any_of(
      schedule.roles[0].actions,
      [](const Action& a) { return a.kind == ActionKind::kBackwardWeight; });
  const double parts = (in_parts ? 3 : 1) * stages / places;
  return (places - 1) / (parts * slices + places - 1);
}

size_t peak_role(const CheckReport& report) {
  return static_cast<size_t>(&report.largest() - report.roles.data());
}

RawJson json_of(const ByKind& parts) {
  JsonObject object;
  for (const auto& [kind, part] : parts)
    object.add(name_of(kind), static_cast<int64_t>(part));
  return {object.text()};
}

}  // namespace

std::string format_step(const StepView& view) {
  const Schedule& schedule = view.schedule;
  const size_t at = busiest(schedule);
  const Role& role = schedule.roles[at];
  const RoleUse& use = view.simulation.roles[at];
  const RolePeak& peak = view.report.largest();
  const Role& high = schedule.roles[peak_role(view.report)];
  const ByKind moved = bytes_moved(schedule, role);
  const double hidden =
      use.communication > 0 ? 100 * use.hidden / use.communication : 0;
  Table rows = {
      {"step", view.name},
      {"layout", text(view.layout.empty() ? "one rank" : view.layout,
                      schedule.exact ? ", exact" : "")},
      {"ranks", text(schedule.world(), " in ", schedule.roles.size(),
                     schedule.roles.size() == 1 ? " role" : " roles")},
      {"slices", text(schedule.slices, ", at most ", role.slices, " per rank, of ",
                      format_quantity(view.costs.samples), " samples")},
      {"buckets", buckets_text(schedule)},
      {"actions", text(role.actions.size(), " (ranks ", ranks_text(role.ranks),
                       "): ", list(count_kinds(role), format_quantity))},
      {"moved", text(format_bytes(total(moved)), " per rank and step",
                     moved.empty() ? "" : ": ", list(moved, bytes_text))},
      {"time", text(format_duration(view.simulation.step), " per step: computation ",
                    format_duration(use.compute), ", communication ",
                    format_duration(use.communication), ", ", format_fixed(hidden, 0),
                    " % of it hidden")},
      {"costs", view.costs_from},
      {"memory", text(format_bytes(static_cast<double>(peak.parts.total())),
                      " at most: ", parts_text(peak.parts))},
      {"", text("at ", action_text(high, peak.action), " (ranks ",
                ranks_text(high.ranks), ")")},
      {"verdict", "accepted"},
  };
  const auto after = [&](std::string_view name) {
    return std::ranges::find(rows, name, [](const auto& row) { return row[0]; }) + 1;
  };
  if (peak.on_device > 0)
    rows.insert(
        after("memory"),
        {"", text(format_bytes(static_cast<double>(peak.on_device)), " on the device, ",
                  format_bytes(static_cast<double>(peak.on_host())), " on the host")});
  if (const std::string calls = inner_calls_text(schedule, role); !calls.empty())
    rows.insert(after("moved"), {"calls", calls});
  if (schedule.mesh.size(Axis::kPipe) == 1) return format_table(rows);
  if (!schedule.stages.empty() && !schedule.blocks.empty())
    rows.insert(after("ranks"), {"stages", stages_text(schedule)});
  rows.insert(after("time"),
              {"idle", text(percent_text(idle_share(schedule, view.simulation.times)),
                            " of a step, the mean of all ranks; equal stages: ",
                            percent_text(ideal_idle_share(schedule)))});
  return format_table(rows);
}

std::string format_measured(const StepView& view) {
  const auto percent = [](double predicted, double measured) {
    if (measured <= 0) return std::string();
    const double off = 100 * (predicted / measured - 1);
    return text(off < 0 ? "" : "+", format_fixed(off, 1), " %");
  };
  Table rows = {{"", "predicted", "measured", "difference"}};
  const auto add = [&](std::string_view name, double predicted, double measured) {
    rows.push_back({std::string(name), format_duration(predicted),
                    format_duration(measured), percent(predicted, measured)});
  };
  const double step = step_seconds(view.measured);
  add("step", view.simulation.step, step);
  const ByKind predicted = seconds_by_kind(view.schedule, view.simulation.times);
  ByKind measured = seconds_by_kind(view.schedule, view.measured);
  for (const auto& [kind, seconds] : predicted)
    add(name_of(kind), seconds, measured[kind]);
  add("no action", idle_seconds(view.schedule, view.simulation.times),
      idle_seconds(view.schedule, view.measured));
  if (view.schedule.mesh.size(Axis::kPipe) > 1)
    rows.push_back(
        {"idle", percent_text(idle_share(view.schedule, view.simulation.times)),
         percent_text(idle_share(view.schedule, view.measured)),
         text("equal stages: ", percent_text(ideal_idle_share(view.schedule)))});
  if (view.measured_peak > 0) {
    const auto foretold = static_cast<double>(view.report.largest().parts.total());
    const auto counted = static_cast<double>(view.measured_peak);
    rows.push_back({"memory", format_bytes(foretold), format_bytes(counted),
                    percent(foretold, counted)});
  }
  return format_table(rows);
}

std::string step_json(const StepView& view) {
  const Schedule& schedule = view.schedule;
  const size_t at = busiest(schedule);
  const Role& role = schedule.roles[at];
  const RoleUse& use = view.simulation.roles[at];
  const RolePeak& peak = view.report.largest();
  const MemoryParts& parts = peak.parts;
  const ByKind moved = bytes_moved(schedule, role);
  JsonObject object;
  object.add("step", view.name)
      .add("layout", view.layout)
      .add("exact", schedule.exact)
      .add("world", schedule.world())
      .add("roles", schedule.roles.size())
      .add("slices", schedule.slices)
      .add("buckets", role.actions.back().buckets.size())
      .add("actions", json_of(count_kinds(role)))
      .add("moved_bytes", static_cast<int64_t>(total(moved)))
      .add("moved", json_of(moved))
      .add("step_ms", view.simulation.step * 1e3)
      .add("compute_ms", use.compute * 1e3)
      .add("communication_ms", use.communication * 1e3)
      .add("hidden_ms", use.hidden * 1e3)
      .add("costs", view.costs_from)
      .add("peak_memory_bytes", parts.total())
      .add("memory", JsonObject()
                         .add("state", parts.state)
                         .add("activations", parts.activations)
                         .add("gradients", parts.gradients)
                         .add("parameters", parts.parameters)
                         .add("scratch", parts.scratch)
                         .add("device", peak.on_device)
                         .add("host", peak.on_host()))
      .add("by_role", roles_json(view))
      .add("verdict", "accepted");
  if (view.measured.empty()) return object.text();
  const double measured = step_seconds(view.measured);
  object.add("measured_step_ms", measured * 1e3)
      .add("predicted_over_measured", view.simulation.step / measured);
  if (view.measured_peak > 0)
    object.add("measured_peak_memory_bytes", view.measured_peak);
  return object.text();
}

}  // namespace cohort::cli
