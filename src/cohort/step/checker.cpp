// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/checker.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/checks/checks.h"

namespace cohort {
namespace {

// The largest part is what to make smaller.
const char* what_helps(const Mesh& mesh, const RoleView& role,
                       const MemoryParts& parts) {
  const int64_t most = std::max({parts.state, parts.activations, parts.parameters,
                                 parts.gradients, parts.scratch});
  if (most == parts.state && mesh.size(kDataAxes) == 1)  // nothing to shard over
    return "more ranks and shard=3, or on a GPU step.offload=optimizer";
  if (most == parts.state)
    return "a higher shard level, more ranks, or on a GPU step.offload=optimizer";
  if (most == parts.parameters) return "step.prefetch=0, or smaller blocks";
  if (most == parts.gradients) return "smaller blocks, or precision=bf16";
  const bool all_again =
      role.all(ActionKind::kRecompute).size() == role.all(ActionKind::kForward).size();
  return all_again ? "more slices, or a smaller batch"
                   : "step.recompute=all, more slices, or a smaller batch";
}

void check_limit(const Mesh& mesh, const RoleView& role, const RolePeak& peak,
                 int64_t limit) {
  const int64_t total = std::max(peak.on_host(), peak.on_device);
  if (limit <= 0 || total <= limit) return;
  role.refuse(peak.action,
              text("R10: holds ", format_bytes(static_cast<double>(total)), " (", total,
                   " bytes); the limit is ", format_bytes(static_cast<double>(limit)),
                   " (", limit, "); what helps: ", what_helps(mesh, role, peak.parts)));
}

}  // namespace

const RolePeak& CheckReport::largest() const {
  return *std::max_element(
      roles.begin(), roles.end(),
      [](const auto& a, const auto& b) { return a.parts.total() < b.parts.total(); });
}

CheckReport check(const Schedule& schedule, const CheckOptions& options) {
  check_form(schedule);
  const StepFacts facts = find_facts(schedule);
  CheckReport report;
  for (int i = 0; i < static_cast<int>(schedule.roles.size()); ++i) {
    const RoleView role(schedule.roles[i], i, schedule.lanes());
    check_split(role);
    check_flow(role, facts, schedule.runs_ahead);
    check_batches(role);
    check_amounts(schedule, role);
    check_declared(role, facts);
    check_parameters(role, facts);
    check_provenance(schedule, role, facts, options);
    check_lives(role, facts);
    report.roles.push_back(find_peak(schedule, role));
    report.volumes.push_back(count_volume(schedule, schedule.roles[i]));
    check_limit(schedule.mesh, role, report.roles.back(), options.memory_limit);
  }
  check_second_copies(schedule, options);
  check_collectives(schedule, options);
  return report;
}

}  // namespace cohort
