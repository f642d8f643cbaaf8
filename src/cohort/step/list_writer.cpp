// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/list_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

// The buckets of the blocks of one place.
ListFacts facts_of(const StepPlan& plan, int place) {
  ListFacts facts{.blocks = static_cast<int>(plan.blocks.size()),
                  .forward_only = plan.options.forward_only};
  const bool turns = plan.schedule.shard >= 2 && plan.shard_lane != kComputeLane;
  for (int b = 0; b < facts.blocks; ++b)
    if (plan.blocks[b].keeps_statistics) facts.statistics.insert(b);
  for (int i = 0; i < static_cast<int>(plan.schedule.buckets.size()); ++i) {
    const Bucket& bucket = plan.schedule.buckets[i];
    if (plan.schedule.shard == 3) facts.cut.insert(i);
    if (!bucket.trained || !is_at(plan.schedule, i, place)) continue;
    facts.trained.insert(i);
    if (plan.options.tensor_sums) facts.looked_at.insert(i);
    if (turns) facts.turns.insert(i);
  }
  return facts;
}

}  // namespace

ListWriter::ListWriter(const StepPlan& plan, int place, int slices)
    : plan_(plan),
      place_(place),
      slices_(slices),
      last_to_add_(::cohort::last_to_add(plan.schedule, plan.uses, place)),
      declarer_(facts_of(plan, place)),
      updated_(plan.schedule.buckets.size(), false) {
  for (size_t s = 1; s < plan.schedule.stages.size(); ++s)
    borders_.insert(plan.schedule.stages[s].blocks.front());
}

std::vector<Turn> ListWriter::turns() const {
  const int stages = static_cast<int>(plan_.schedule.stages.size());
  return turns_of(plan_.options.pipeline.order,
                  {.place = place_,
                   .places = plan_.places(),
                   .stages = std::max(1, stages / plan_.places()),
                   .rounds = plan_.rounds});
}

std::vector<int> ListWriter::blocks_of(const Turn& turn) const {
  std::vector<int> blocks(plan_.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  if (!plan_.schedule.stages.empty()) blocks = plan_.schedule.stages[turn.stage].blocks;
  if (turn.kind != ActionKind::kForward) std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

bool ListWriter::is_here(int bucket) const {
  return is_at(plan_.schedule, bucket, place_);
}

bool ListWriter::mirrors_along(Axis axis) const {
  return has_mirrors(plan_.schedule) && mirror_axis(plan_.schedule) == axis;
}

bool ListWriter::is_mirrored_here(int bucket) const {
  const Mesh& mesh = plan_.schedule.mesh;
  return plan_.schedule.buckets[bucket].trained &&
         mirrors(plan_.schedule, mesh.with(0, Axis::kPipe, place_), bucket);
}

void ListWriter::add(Action action) {
  declarer_.declare(action);
  for (auto& access : action.writes) access.bytes = activation_bytes(action, access);
  actions_.push_back(std::move(action));
}

// What is kept from forward to backward; of a block that is recomputed the output
// alone, until then.
int64_t ListWriter::activation_bytes(const Action& action, const Access& access) const {
  if (action.kind == ActionKind::kRecv && is_made_anew(access.value.what))
    return action.bytes;
  if (action.block == kNone) return 0;
  const BlockSpec& spec = plan_.blocks[action.block];
  if (access.value.what == What::kAct) return spec.output_bytes;
  if (access.value.what == What::kDeferred) return spec.deferred_bytes;
  if (access.value.what != What::kFlight) return 0;
  if (action.kind == ActionKind::kRecompute) return spec.activation_bytes;
  if (plan_.options.recompute.has(action.block)) return 0;
  return std::max<int64_t>(0, spec.activation_bytes - spec.output_bytes);
}

void ListWriter::compute(ActionKind kind, int block, int slice) {
  if (slice >= slices_) return;
  if (kind == ActionKind::kForward) return forward(block, slice);
  if (kind == ActionKind::kBackwardWeight) return run_block(kind, block, slice);
  backward(kind, block, slice);
}

void ListWriter::run_block(ActionKind kind, int block, int slice) {
  add({.kind = kind,
       .block = block,
       .slice = slice,
       .buckets = plan_.uses[block],
       .scratch = plan_.blocks[block].scratch_bytes,
       .calls = calls_in(kind, block)});
}

// Where a block is alone in a group there is nobody to call. Gradients of weights are
// made without others.
std::vector<InnerCall> ListWriter::calls_in(ActionKind kind, int block) const {
  std::vector<InnerCall> calls;
  if (kind == ActionKind::kBackwardWeight) return calls;
  const bool backward =
      kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
  const auto when = backward                     ? BlockCall::When::kBackward
                    : plan_.options.forward_only ? BlockCall::When::kEvaluate
                                                 : BlockCall::When::kForward;
  for (const auto& call : plan_.blocks[block].calls) {
    const int ranks = plan_.schedule.mesh.size(call.axes);
    if (call.when != when || ranks == 1) continue;
    const bool gathers = call.op == CallOp::kAllGather;
    const auto dtype = call.dtype_for(plan_.schedule.precision.compute);
    calls.push_back(
        {.group = plan_.schedule.group_along(call.axes),
         .op = call.op,
         .bytes = call.numel_for(0) * size_of(dtype) * (gathers ? ranks : 1)});
  }
  return calls;
}

// An output, or the gradient of one, which is as large.
void ListWriter::transfer(ActionKind kind, What what, int block, int slice, int lane) {
  Action action{.kind = kind,
                .lane = lane,
                .slice = slice,
                .bytes = plan_.blocks[block].output_bytes};
  if (kind == ActionKind::kSend)
    declarer_.versions().read(action, what, block, slice);
  else
    declarer_.versions().make(action, what, block, slice);
  add(std::move(action));
}

void ListWriter::forward(int block, int slice) {
  const int before = (place_ + plan_.places() - 1) % plan_.places();
  if (borders_.contains(block))
    transfer(ActionKind::kRecv, What::kAct, block - 1, slice, plan_.act_link(before));
  run_block(ActionKind::kForward, block, slice);
  if (borders_.contains(block + 1))
    transfer(ActionKind::kSend, What::kAct, block, slice, plan_.act_link(place_));
}

void ListWriter::backward(ActionKind kind, int block, int slice) {
  const int behind = (place_ + 1) % plan_.places();
  if (borders_.contains(block + 1))
    transfer(ActionKind::kRecv, What::kActGrad, block, slice, plan_.grad_link(behind));
  if (plan_.options.recompute.has(block))
    run_block(ActionKind::kRecompute, block, slice);
  run_block(kind, block, slice);
  if (borders_.contains(block))
    transfer(ActionKind::kSend, What::kActGrad, block - 1, slice,
             plan_.grad_link(place_));
}

void ListWriter::reduce_loss() {
  if (plan_.all_lane == kComputeLane) return;
  add({.kind = ActionKind::kReduce,
       .lane = plan_.all_lane,
       .buckets = {kLossBucket},
       .bytes = kLossBytes});
}

void ListWriter::reduce(int bucket) {
  if (plan_.dp_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  add({.kind = ActionKind::kReduce,
       .lane = plan_.dp_lane,
       .buckets = {bucket},
       .bytes = what.numel * size_of(plan_.schedule.precision.reduce)});
}

void ListWriter::reduce_scatter(int bucket, int slice) {
  if (plan_.shard_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  const int64_t width = size_of(plan_.schedule.precision.reduce);
  add({.kind = ActionKind::kReduceScatter,
       .lane = plan_.shard_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = what.numel * width});
  if (slice != kNone && slice + 1 != plan_.rounds) return;
  if (mirrors_along(Axis::kCut)) mirror(std::exchange(next_to_mirror_, bucket));
  if (plan_.replicate_lane == kComputeLane) return;
  add({.kind = ActionKind::kReduce,
       .lane = plan_.replicate_lane,
       .buckets = {bucket},
       .bytes = shard(bucket) * width});
}

bool ListWriter::may_update_at_once() const {
  return !plan_.schedule.keeps_sums && plan_.dp_lane != kComputeLane;
}

void ListWriter::reduce_update(int bucket, int slice) {
  updated_[bucket] = true;
  add({.kind = ActionKind::kReduceUpdate,
       .lane = plan_.shard_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = plan_.schedule.buckets[bucket].numel *
                size_of(plan_.schedule.precision.reduce)});
}

void ListWriter::mirror(int bucket) {
  if (bucket == kNone || !is_mirrored(plan_.schedule, bucket)) return;
  const bool cut = mirrors_along(Axis::kCut);
  add({.kind = ActionKind::kMirror,
       .lane = cut ? plan_.shard_lane : plan_.all_lane,
       .buckets = {bucket},
       .bytes = shard(bucket) * size_of(sum_type(plan_.schedule))});
}

// All ranks have parts of all tensors, so each has a neighbour before and
// behind it.
void ListWriter::hand_on_parts() {
  if (!mirrors_along(Axis::kTensor)) return;
  for (int i = 0; i < buckets(); ++i)
    if (plan_.schedule.buckets[i].trained) mirror(i);
}

// All that is sent is sent first: a neighbour may be waiting for it.
void ListWriter::exchange_mirrors() {
  if (!mirrors_along(Axis::kPipe)) return;
  const int before = (place_ + plan_.places() - 1) % plan_.places();
  const auto transfer = [&](ActionKind kind, int bucket, int lane) {
    return Action{.kind = kind,
                  .lane = plan_.mirror_link(lane),
                  .buckets = {bucket},
                  .bytes = plan_.schedule.buckets[bucket].numel *
                           size_of(sum_type(plan_.schedule))};
  };
  for (int i = 0; i < buckets(); ++i) {
    if (!plan_.schedule.buckets[i].trained || !is_here(i) || is_spread(i)) continue;
    Action action = transfer(ActionKind::kSend, i, place_);
    declarer_.versions().read(action, What::kPartial, i);
    add(std::move(action));
  }
  for (int i = 0; i < buckets(); ++i) {
    if (!is_mirrored_here(i)) continue;
    Action action = transfer(ActionKind::kRecv, i, before);
    declarer_.versions().make(action, What::kPartial, i);
    declarer_.mirror(i);
    add(std::move(action));
  }
}

// Where whole parameters were updated in shards, a copy of the shard travels, unless
// the reduction has written it everywhere.
void ListWriter::gather(int bucket, int slice) {
  const int64_t width = size_of(plan_.schedule.precision.compute);
  const bool copies = plan_.schedule.shard < 3 && plan_.schedule.keeps_sums;
  add({.kind = ActionKind::kGather,
       .lane = plan_.gather_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = plan_.schedule.buckets[bucket].numel * width,
       .scratch = copies ? shard(bucket) * width : 0});
}

void ListWriter::free_parameters(int bucket, int slice) {
  add({.kind = ActionKind::kFree, .slice = slice, .buckets = {bucket}});
}

bool ListWriter::may_overlap_updates() const {
  return plan_.options.overlap_updates && !has_norm() && !plan_.options.vote;
}

void ListWriter::update(int bucket) {
  if (updated_[bucket] || !plan_.schedule.buckets[bucket].trained) return;
  if (is_spread(bucket) && !has_summed_tied_) return;
  const bool copy = is_mirrored_here(bucket);
  if (!copy && !is_here(bucket)) return;
  updated_[bucket] = true;
  const bool twice = is_mirrored(plan_.schedule, bucket) && !mirrors_along(Axis::kPipe);
  add({.kind = ActionKind::kUpdate,
       .buckets = {bucket},
       .bytes = (twice ? 2 : 1) * shard(bucket) * size_of(at::kFloat)});
  if (copy) return;
  const int level = plan_.schedule.shard;
  if ((level == 1 || level == 2) && plan_.shard_lane != kComputeLane)
    gather(bucket, kNone);
}

void ListWriter::finish_updates() {
  mirror(std::exchange(next_to_mirror_, kNone));
  sum_tied();
  exchange_mirrors();
  hand_on_parts();
  if (has_norm()) add({.kind = ActionKind::kNorm, .lane = plan_.all_lane});
  if (plan_.options.elastic) fold_buffers();
  if (plan_.options.vote)
    add({.kind = ActionKind::kVote, .lane = plan_.all_lane, .bytes = kVoteBytes});
  for (int i = 0; i < buckets(); ++i) update(i);
}

// At the end: a place that waits for another one while it has gradients to send would
// wait for ever.
void ListWriter::sum_tied() {
  has_summed_tied_ = true;
  for (int i = 0; i < buckets(); ++i)
    if (plan_.schedule.buckets[i].trained && is_here(i) && is_spread(i))
      add({.kind = ActionKind::kReduce,
           .lane = plan_.tied_lanes[i],
           .buckets = {i},
           .bytes = shard(i) * size_of(sum_type(plan_.schedule))});
}

bool ListWriter::has_norm() const {
  return plan_.options.clip || plan_.options.tensor_sums;
}

bool ListWriter::has_statistics() const {
  return !plan_.options.forward_only &&
         std::any_of(plan_.blocks.begin(), plan_.blocks.end(),
                     [](const BlockSpec& block) { return block.keeps_statistics; });
}

void ListWriter::fold_buffers() {
  if (has_statistics()) add({.kind = ActionKind::kFoldBuffers, .lane = plan_.all_lane});
}

void ListWriter::commit() {
  Action commit{.kind = ActionKind::kCommit};
  if (has_norm()) commit.needs.push_back(ActionKind::kNorm);
  if (plan_.options.vote) commit.needs.push_back(ActionKind::kVote);
  if (has_statistics()) commit.needs.push_back(ActionKind::kFoldBuffers);
  if (!plan_.options.elastic) fold_buffers();
  for (int i = 0; i < buckets() && !plan_.options.forward_only; ++i)
    if (updated_[i]) commit.buckets.push_back(i);
  const bool mirrored = std::ranges::any_of(
      commit.buckets, [&](int i) { return is_mirrored(plan_.schedule, i); });
  if (mirrored && !mirrors_along(Axis::kPipe))
    commit.needs.push_back(ActionKind::kMirror);
  add(std::move(commit));
}

int64_t ListWriter::shard(int bucket) const { return plan_.schedule.shard_of(bucket); }

}  // namespace cohort
