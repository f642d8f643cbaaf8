// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/declare.h"

#include <algorithm>

namespace cohort {
namespace {

int only_bucket(const Action& action) {
  return action.buckets.size() == 1 ? action.buckets[0] : kNone;
}

}  // namespace

void Declarer::declare(Action& action) {
  const int bucket = only_bucket(action);
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action);
    case ActionKind::kRecompute:
      return recompute(action);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return backward(action);
    case ActionKind::kBackwardWeight:
      return backward_weight(action);
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
      return sum(action);
    case ActionKind::kReduceUpdate:
      return reduce_update(action);
    case ActionKind::kMirror:
      versions_.read(action, sum_of(bucket), bucket);
      return versions_.make(action, What::kMirrored, bucket);
    case ActionKind::kGather:
      return gather(action);
    case ActionKind::kFree:
      return versions_.change(action, What::kWhole, bucket);
    case ActionKind::kNorm:
      read_gradients(action);
      for (const int looked : facts_.looked_at)
        versions_.read(action, What::kState, looked);
      read_loss(action);
      return versions_.make(action, What::kNorm);
    case ActionKind::kFoldBuffers:
      versions_.read_all(action, What::kStat);
      return versions_.make(action, What::kFolded);
    case ActionKind::kVote:
      read_gradients(action);
      read_loss(action);
      read_if_there(action, {What::kNorm, What::kFolded});
      return versions_.make(action, What::kVote);
    case ActionKind::kUpdate:
      return update(action);
    case ActionKind::kCommit:
      return commit(action);
    default:
      return;  // a transfer names its value itself
  }
}

// ---- blocks ----

void Declarer::read_inputs(Action& action) const {
  if (action.block == 0)
    versions_.read(action, What::kInput, kNone, action.slice);
  else
    versions_.read(action, What::kAct, action.block - 1, action.slice);
  read_parameters(action);
}

void Declarer::read_parameters(Action& action) const {
  for (const int bucket : action.buckets) versions_.read(action, What::kWhole, bucket);
}

void Declarer::forward(Action& action) {
  const auto [block, slice] = std::pair(action.block, action.slice);
  computed_.insert(block);
  read_inputs(action);
  versions_.make(action, What::kAct, block, slice);
  if (!facts_.forward_only) {
    versions_.make(action, What::kFlight, block, slice);
    if (facts_.statistics.contains(block))
      versions_.make(action, What::kStat, block, slice);
  }
  if (block + 1 == facts_.blocks) versions_.make(action, What::kLoss, kNone, slice);
}

void Declarer::recompute(Action& action) {
  read_inputs(action);
  versions_.change(action, What::kFlight, action.block, action.slice);
}

void Declarer::backward(Action& action) {
  const auto [block, slice] = std::pair(action.block, action.slice);
  versions_.read(action, What::kFlight, block, slice);
  versions_.read(action, What::kAct, block, slice);
  if (block + 1 < facts_.blocks) versions_.read(action, What::kActGrad, block, slice);
  // A block keeps its inputs. What was computed here its own backward reads later; what
  // came over a link nobody else reads.
  if (block > 0 && !computed_.contains(block - 1))
    versions_.read(action, What::kAct, block - 1, slice);
  read_parameters(action);
  if (block > 0) versions_.make(action, What::kActGrad, block - 1, slice);
  if (action.kind == ActionKind::kBackwardInput)
    versions_.make(action, What::kDeferred, block, slice);
  else
    add_to_gradients(action);
}

void Declarer::backward_weight(Action& action) {
  versions_.read(action, What::kDeferred, action.block, action.slice);
  // It computes without them: those that are whole for a while alone need not be.
  for (const int bucket : action.buckets)
    if (!facts_.cut.contains(bucket)) versions_.read(action, What::kWhole, bucket);
  add_to_gradients(action);
}

// ---- gradients ----

void Declarer::make_or_change(Action& action, What what, int of, int slice) {
  if (versions_.has(what, of, slice))
    versions_.change(action, what, of, slice);
  else
    versions_.make(action, what, of, slice);
}

void Declarer::add_to_gradients(Action& action) {
  for (const int bucket : action.buckets) {
    if (!facts_.trained.contains(bucket)) continue;
    if (facts_.turns.contains(bucket))
      make_or_change(action, What::kLeaf, bucket, action.slice);
    else
      make_or_change(action, What::kPartial, bucket);
  }
}

// Copies of a shard are summed when the shard itself is.
void Declarer::sum(Action& action) {
  const int bucket = only_bucket(action);
  if (bucket == kLossBucket) {
    read_loss(action);
    return versions_.make(action, What::kLoss);
  }
  const bool again = versions_.has(What::kSum, bucket);
  if (!again || action.slice != kNone || action.kind == ActionKind::kReduceScatter)
    read_addends(action);
  make_or_change(action, What::kSum, bucket);
}

// A rank without such a slice gives nothing, from the same memory.
void Declarer::read_addends(Action& action) {
  const int bucket = only_bucket(action);
  if (!facts_.turns.contains(bucket))
    return versions_.read(action, What::kPartial, bucket);
  if (versions_.has(What::kLeaf, bucket, action.slice))
    versions_.read(action, What::kLeaf, bucket, action.slice);
  else
    versions_.make(action, What::kLeaf, bucket, action.slice);
}

// The sum over ranks, or over slices where nobody sums over ranks.
What Declarer::sum_of(int bucket) const {
  return versions_.has(What::kSum, bucket) ? What::kSum : What::kPartial;
}

void Declarer::read_gradient(Action& action, int bucket) const {
  versions_.read(action, sum_of(bucket), bucket);
  if (versions_.has(What::kMirrored, bucket))
    versions_.read(action, What::kMirrored, bucket);
}

void Declarer::read_gradients(Action& action) const {
  for (const int bucket : facts_.trained) read_gradient(action, bucket);
}

// ---- parameters and state ----

void Declarer::gather(Action& action) {
  const int bucket = only_bucket(action);
  versions_.read(action, What::kState, bucket);
  if (facts_.cut.contains(bucket))
    versions_.make(action, What::kWhole, bucket);
  else
    versions_.change(action, What::kWhole, bucket);
}

void Declarer::update(Action& action) {
  const int bucket = only_bucket(action);
  read_gradient(action, bucket);
  read_loss(action);
  read_if_there(action, {What::kNorm, What::kVote});
  versions_.change(action, What::kState, bucket);
  if (!facts_.cut.contains(bucket)) versions_.change(action, What::kWhole, bucket);
}

// Peers write into these parameters at their own call.
void Declarer::reduce_update(Action& action) {
  const int bucket = only_bucket(action);
  read_addends(action);
  if (versions_.has(What::kSum, bucket)) versions_.read(action, What::kSum, bucket);
  read_loss(action);
  versions_.change(action, What::kState, bucket);
  if (!facts_.cut.contains(bucket)) versions_.change(action, What::kWhole, bucket);
}

// ---- the end of a step ----

void Declarer::read_loss(Action& action) const {
  if (versions_.has(What::kLoss)) return versions_.read(action, What::kLoss);
  versions_.read_all(action, What::kLoss);
}

void Declarer::read_if_there(Action& action, std::initializer_list<What> whats) const {
  for (const What what : whats)
    if (versions_.has(what)) versions_.read(action, what);
}

// All that a step leaves.
void Declarer::commit(Action& action) {
  for (const int bucket : action.buckets) {
    versions_.read(action, What::kState, bucket);
    if (!facts_.cut.contains(bucket)) versions_.read(action, What::kWhole, bucket);
  }
  read_loss(action);
  read_if_there(action, {What::kNorm, What::kVote, What::kFolded});
}

// ---- lists that declare nothing ----

namespace {

bool changes_something(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kUpdate ||
         kind == ActionKind::kRecompute;
}

bool sums_slices(const Action& action) {
  return action.slice != kNone && sums_shards(action.kind);
}

ListFacts facts_of(const Schedule& schedule) {
  ListFacts facts{.forward_only = true};
  std::set<int> blocks;
  bool folds = false;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions) {
      facts.forward_only &= !changes_something(action.kind);
      folds |= action.kind == ActionKind::kFoldBuffers;
      if (action.kind == ActionKind::kForward) blocks.insert(action.block);
      const auto& buckets = action.buckets;
      if (action.kind == ActionKind::kCommit)
        facts.trained.insert(buckets.begin(), buckets.end());
      if (action.kind == ActionKind::kFree)
        facts.cut.insert(buckets.begin(), buckets.end());
      if (sums_slices(action)) facts.turns.insert(buckets.begin(), buckets.end());
    }
  if (!blocks.empty()) facts.blocks = *blocks.rbegin() + 1;
  if (folds) facts.statistics = std::move(blocks);
  return facts;
}

}  // namespace

void declare_by_kinds(Schedule& schedule) {
  const ListFacts facts = facts_of(schedule);
  for (auto& role : schedule.roles) {
    Declarer declarer(facts);
    for (auto& action : role.actions) {
      action.reads.clear();
      action.writes.clear();
      declarer.declare(action);
    }
  }
}

}  // namespace cohort
