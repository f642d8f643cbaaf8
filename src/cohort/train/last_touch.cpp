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

std::string name_of(const Schedule& schedule, int rank, size_t index) {
  const Action& action = schedule.role_of(rank).actions[index];
  std::string out = text("action ", index, ", ", cohort::name_of(action.kind));
  if (action.block != kNone)
    out += text(" of block ", action.block, " (", schedule.blocks[action.block], ")");
  if (action.slice != kNone) out += text(", slice ", action.slice);
  return out + calls_of(schedule, action);
}

// A sum over ranks, which is a collective itself.
std::string sum_of(const Schedule& schedule, int rank, size_t index) {
  const Action& action = schedule.role_of(rank).actions[index];
  const int bucket = action.buckets[0];
  return text(name_of(schedule, rank, index),
              bucket == kLossBucket ? " of the loss" : text(" of bucket ", bucket),
              " in ", schedule.name_of_lane(action.lane));
}

// What the last actions of each kind are called, in their order.
std::string told(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts)
    if (!part.empty()) out += text(out.empty() ? "last touched by " : "; then ", part);
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
    if (is_backward(action.kind) && action.block == block)
      backward = name_of(schedule, rank, i);
    if (sums(action) && shares_bucket(action)) sum = sum_of(schedule, rank, i);
    if (action.kind == ActionKind::kUpdate && shares_bucket(action))
      update = text(name_of(schedule, rank, i), " of bucket ", action.buckets[0]);
  }
  return told({backward, sum, update});
}

std::string last_touch_of_loss(const Schedule& schedule, int rank) {
  const auto& actions = schedule.role_of(rank).actions;
  const int last = static_cast<int>(schedule.blocks.size()) - 1;
  std::string forward, sum;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind == ActionKind::kForward && actions[i].block == last)
      forward = name_of(schedule, rank, i);
    if (sums(actions[i]) && actions[i].buckets == std::vector{kLossBucket})
      sum = sum_of(schedule, rank, i);
  }
  return told({forward, sum});
}

std::string forward_action(const Schedule& schedule, int rank, int block, int slice) {
  const auto& actions = schedule.role_of(rank).actions;
  const int of_rank = slice - schedule.mesh.slices(rank, schedule.slices).begin;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == ActionKind::kForward && actions[i].block == block &&
        actions[i].slice == of_rank)
      return name_of(schedule, rank, i);
  throw BugError(text("[verify] no forward of block ", block, ", slice ", slice));
}

}  // namespace cohort
