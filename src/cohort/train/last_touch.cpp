// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/last_touch.h"

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort {
namespace {

bool sums(const Action& action) {
  return action.kind == ActionKind::kReduce ||
         action.kind == ActionKind::kReduceScatter ||
         action.kind == ActionKind::kReduceUpdate;
}

std::string calls_of(const Schedule& schedule, const Action& action) {
  std::string out;
  for (const auto& call : action.calls)
    out += text(out.empty() ? " with " : ", ", name_of(call.op), " in ",
                schedule.groups[call.group].name);
  return out;
}

}  // namespace

std::string last_touch(const Schedule& schedule, int rank, int block) {
  const auto& actions = schedule.role_of(rank).actions;
  const auto shares_bucket = [&](const Action& action) {
    return std::ranges::any_of(action.buckets, [&](int bucket) {
      if (bucket < 0) return false;
      const auto& blocks = schedule.buckets[bucket].blocks;
      return std::ranges::find(blocks, block) != blocks.end();
    });
  };
  std::string backward, sum, update;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const std::string name = text("action ", i, ", ", name_of(action.kind));
    if (is_backward(action.kind) && action.block == block)
      backward = text(name, " of block ", block, " (", schedule.blocks[block],
                      "), slice ", action.slice, calls_of(schedule, action));
    if (sums(action) && shares_bucket(action))
      sum = text(name, " of bucket ", action.buckets[0], " in ",
                 schedule.name_of_lane(action.lane));
    if (action.kind == ActionKind::kUpdate && shares_bucket(action))
      update = text(name, " of bucket ", action.buckets[0]);
  }
  std::string out;
  for (const auto& part : {backward, sum, update})
    if (!part.empty()) out += text(out.empty() ? "last touched by " : "; then ", part);
  return out;
}

}  // namespace cohort
