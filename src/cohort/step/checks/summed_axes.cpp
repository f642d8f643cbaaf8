// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/checks/summed_axes.h"

#include <algorithm>

namespace cohort {

// Two ways to see the same ranks: a sum along one of them has parts of the other.
bool share_ranks(const Mesh& mesh, AxisSet one, AxisSet other) {
  if ((one.meets(kExpertAxes) && other.meets(kRecutAxes)) ||
      (one.meets(kRecutAxes) && other.meets(kExpertAxes)))
    return true;
  return std::ranges::any_of(kNamedAxes, [&](Axis axis) {
    return one.has(axis) && other.has(axis) && mesh.size(axis) > 1;
  });
}

std::optional<Axis> missing_axis(const Mesh& mesh, AxisSet wanted, AxisSet summed) {
  for (const Axis axis : kNamedAxes)
    if (wanted.has(axis) && !summed.has(axis) && mesh.size(axis) > 1) return axis;
  return std::nullopt;
}

// The tokens of other ranks have come to an expert: ranks with other experts have no
// part of its gradient.
AxisSet contributors(const Schedule& schedule, int bucket) {
  const bool known = static_cast<size_t>(bucket) < schedule.buckets.size();
  const AxisSet sum = known ? schedule.buckets[bucket].sum : kDataAxes;
  const AxisSet all = sum | AxisSet{Axis::kPipe, Axis::kReplicate};
  return all | (sum.meets(kExpertAxes) ? AxisSet{Axis::kExpertCut} : kRecutAxes);
}

}  // namespace cohort
