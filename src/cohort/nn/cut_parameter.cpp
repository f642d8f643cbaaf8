// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/cut_parameter.h"

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kMostSizesNamed = 64;  // sizes that a message lists

ParameterCut cut_of(const CutShape& cut, const PartRange& range) {
  ParameterCut part{.shape = cut.shape};
  TensorBox& box = part.box;
  for (size_t d = 0; d < cut.shape.size(); ++d) {
    const bool here = static_cast<int64_t>(d) == cut.dim;
    if (here && cut.groups > 1) {
      box.cut.push_back(cut.groups);
      box.from.push_back(0);
      box.to.push_back(cut.groups);
    }
    box.cut.push_back(here ? cut.shape[d] / cut.groups : cut.shape[d]);
    box.from.push_back(here ? range.first : 0);
    box.to.push_back(here ? range.first + range.count : cut.shape[d]);
  }
  return part;
}

}  // namespace

PartRange range_of(int64_t items, const TensorPart& part) {
  const int64_t room = (items + part.size - 1) / part.size;
  const int64_t first = std::min(items, part.rank * room);
  return {.first = first, .count = std::min(room, items - first), .room = room};
}

Tensor add_part(TensorLists& tensors, const std::string& name, const CutShape& cut,
                const FirstValue& value, const TensorPart& part) {
  if (part.size == 1)
    return tensors.add_parameter(name, new_parameter(cut.shape, value));
  const int64_t items = cut.shape[cut.dim] / cut.groups;
  const PartRange range = range_of(items, part);
  COHORT_CHECK(range.room * part.size == items || (cut.dim == 0 && cut.groups == 1),
               name, ": ", items, " items in ", part.size, " parts");
  const ParameterCut box = cut_of(cut, range);
  auto shape = cut.shape;
  shape[cut.dim] = cut.groups * range.room;
  return tensors.add_parameter(name, new_part(shape, value, box), box);
}

FirstValue normal_values(double deviation, uint64_t seed, const std::string& name) {
  return {.key = RandomKey::of_path(seed, name), .deviation = deviation};
}

FirstValue all_equal_to(double value) {
  return {.key = {}, .low = value, .high = value};
}

void require_even(std::string_view what, int64_t items, const TensorPart& part) {
  if (items % part.size == 0) return;
  std::string legal;
  for (int64_t size = 1; size <= std::min(items, kMostSizesNamed); ++size)
    if (items % size == 0) legal += text(legal.empty() ? "" : ", ", size);
  throw ConfigError(
      text("[nn] ", what, " of ", items, " on tp=", part.size, "; legal: tp=", legal));
}

void require_some(std::string_view what, int64_t items, const TensorPart& part) {
  const int64_t room = (items + part.size - 1) / part.size;
  if (room * (part.size - 1) < items) return;
  throw ConfigError(text("[nn] ", what, " of ", items, " leaves nothing for one of tp=",
                         part.size, " ranks; legal: fewer of them"));
}

}  // namespace cohort
