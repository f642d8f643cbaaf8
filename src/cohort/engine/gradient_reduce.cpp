// SPDX-License-Identifier: Apache-2.0
// Sums over ranks: by reaching into each other's memory, or by collectives.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "cohort/engine/gradient_sums.h"

namespace cohort {
namespace {

const float* floats(const Tensor& tensor) { return tensor.const_data_ptr<float>(); }

const void* element(const Tensor& tensor, int64_t index) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         index * static_cast<int64_t>(tensor.element_size());
}

}  // namespace

PendingWork GradientSums::reduce(int bucket, int slice, const Visitor* visitor) {
  if (!meets_) return {};
  for (size_t use = 1; use < uses_[bucket].size(); ++use)
    reduce_use(uses_[bucket][use], slice, visitor).finish();
  PendingWork work = reduce_use(bucket, slice, visitor);
  const bool last = slice == kNone || slice + 1 == slices_.rounds();
  if (!keeps_apart(bucket) || !last || replicate_) return work;
  return {std::move(work.work), [this, bucket, then = std::move(work.then)] {
            if (then) then();
            add_uses(bucket);
          }};
}

PendingWork GradientSums::reduce_use(int bucket, int slice, const Visitor* visitor) {
  const c10::NoGradGuard no_grad;
  if (level_ == 0 && !visitor) return reduce_whole(bucket);
  if (peers_) return work_jointly(bucket, slice, visitor);
  if (!exact_) return reduce_scatter(bucket, slice);
  if (in_rounds())
    exchange_leaves(bucket, slice);
  else
    exchange_partials(bucket);
  return {};
}

PendingWork GradientSums::work_jointly(int bucket, int slice, const Visitor* visitor) {
  return {peers_->work_jointly(state_of(bucket).numel,
                               [=, this] { work_on_shard(bucket, slice, visitor); }),
          nullptr};
}

// Positions: `begin` counts in the bucket, `at` in this rank's shard.
void GradientSums::work_on_shard(int bucket, int slice, const Visitor* visitor) {
  BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  const int64_t first = shard * shard_->rank();
  scratch_.resize(static_cast<size_t>(std::min(kStretch, shard)));
  const bool last = slice == kNone || slice + 1 == slices_.rounds();
  for (int64_t at = 0; at < shard; at += kStretch) {
    const int64_t count = std::min(kStretch, shard - at);
    const int64_t begin = first + at;
    if (in_rounds()) {
      add_round(bucket, slice, at, count, scratch_.data());
    } else if (exact_) {
      for (int m = 0; seals_ && m < shard_->size(); ++m)
        for (size_t i = 0; i < slices_.partials(m); ++i)
          look(sums.peer_seals[m][i].holds(shard, begin, count), m);
      fold_group(sums, pointers(sums.peers, begin), at, count, scratch_.data());
    } else {
      std::vector<const void*> inputs;
      for (const auto& peer : sums.peers) inputs.push_back(element(peer[0], begin));
      sum_in_order(sums.peers[0][0].scalar_type(), inputs, count, scratch_.data());
    }
    if (!last) continue;
    if (visitor)
      (*visitor)(bucket, begin, count, scratch_.data());
    else
      keep(sums, at, count, scratch_.data());
  }
}

// The gradients of one slice of each rank that has one; in the last round the sum of
// all of them is left in `out`.
void GradientSums::add_round(int bucket, int round, int64_t at, int64_t count,
                             float* out) {
  BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  const int64_t begin = shard * shard_->rank() + at;
  std::vector<const void*> leaves(shard_->size(), nullptr);
  for (int m = 0; m < shard_->size(); ++m) {
    if (!slices_.has_slice(m, round)) continue;
    leaves[m] = element(ring_.peers[sums.slot][m], begin);
    if (seals_) look(ring_.peer_seals[sums.slot][m].holds(shard, begin, count), m);
  }
  const bool last = round + 1 == slices_.rounds();
  if (exact_) {
    push_round(bucket, round, at, count, leaves);
    if (last) fold_stacks(bucket, at, count, out);
    return;
  }
  std::erase(leaves, nullptr);
  sum_in_order(precision_.compute, leaves, count, out);
  if (slices_.rounds() == 1) return;
  float* const kept = sums.shard.data_ptr<float>() + at;
  if (round > 0) widen_add(at::kFloat, kept, count, out);
  if (!last) std::copy_n(out, count, kept);
}

void GradientSums::push_round(int bucket, int round, int64_t at, int64_t count,
                              const std::vector<const void*>& leaves) {
  BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  for (int m = 0; m < shard_->size(); ++m) {
    if (!leaves[m]) continue;
    const auto [top, merges] = slices_.push_of(m, round);
    for (int i = top - merges; seals_ && i < top; ++i)
      look(sums.stack_seals[m][i].holds(shard, at, count), shard_->rank());
    const auto sum = [&](int i) { return sums.stacks[m][i].data_ptr<float>() + at; };
    push_on_stack(
        true, top, merges,
        {.put = [&](int i) { widen(precision_.compute, leaves[m], count, sum(i)); },
         .add = [&](int i) { widen_add(precision_.compute, leaves[m], count, sum(i)); },
         .merge = [&](int i) { widen_add(at::kFloat, sum(i + 1), count, sum(i)); }});
    if (seals_) sums.stack_seals[m][top - merges].close(shard, at, count);
  }
}

void GradientSums::fold_stacks(int bucket, int64_t at, int64_t count, float* out) {
  BucketSums& sums = buckets_[bucket];
  for (int m = 0; seals_ && m < shard_->size(); ++m)
    for (size_t i = 0; i < slices_.partials(m); ++i)
      look(sums.stack_seals[m][i].holds(shard_count(bucket), at, count),
           shard_->rank());
  fold_group(sums, pointers(sums.stacks, at), at, count, out);
}

// Element `at` of every sum that the members are left with.
GradientSums::Pointers GradientSums::pointers(const Buffers& buffers,
                                              int64_t at) const {
  Pointers pointers;
  for (int m = 0; m < shard_->size(); ++m)
    for (size_t i = 0; i < slices_.partials(m); ++i)
      pointers.push_back(floats(buffers[m][i]) + at);
  return pointers;
}

// With one group that is the sum; with several, what the replicas will add up.
void GradientSums::fold_group(BucketSums& sums, const Pointers& inputs, int64_t at,
                              int64_t count, float* out) {
  std::vector<float*> outputs{out};
  if (replicate_) {
    outputs.clear();
    for (int64_t i = 0; i < sums.partials.size(0); ++i)
      outputs.push_back(sums.partials.data_ptr<float>() + i * sums.partials.size(1) +
                        at);
  }
  (*fold_)(inputs, count, outputs);
  if (!seals_ || !replicate_) return;
  const int64_t shard = sums.partials.size(1);
  for (int64_t i = 0; i < sums.partials.size(0); ++i)
    sums.partials_seal.close(shard, i * shard + at, count);
}

// The same of whole shards.
void GradientSums::fold_group(BucketSums& sums, const std::vector<Tensor>& inputs,
                              const Tensor& out) {
  const std::vector<Tensor> outputs =
      replicate_ ? sums.partials.unbind(0) : std::vector<Tensor>{out};
  home_.kernels->fold(*fold_, inputs, outputs);
  if (seals_ && replicate_)
    sums.partials_seal.close_all(sums.partials.size(1), sums.partials.size(0));
}

void GradientSums::keep(BucketSums& sums, int64_t at, int64_t count, const float* sum) {
  if (exact_ && replicate_) return;  // kept as partials
  narrow(sums.shard.scalar_type(), sum, count,
         static_cast<std::byte*>(sums.shard.data_ptr()) +
             at * static_cast<int64_t>(sums.shard.element_size()));
  sums.shard_seal.close(sums.shard.numel(), at, count);
}

// What this rank added up alone.
const Tensor& GradientSums::own_sum(const BucketSums& sums) const {
  return sums.sums.empty() ? sums.leaf : sums.sums[0];
}

const Tensor& GradientSums::sum(int bucket) const {
  const BucketSums& sums = buckets_[bucket];
  return sums.shard.defined() ? sums.shard : own_sum(sums);
}

PendingWork GradientSums::reduce_whole(int bucket) {
  BucketSums& sums = buckets_[bucket];
  if (exact_ && peers_) return work_jointly(bucket, kNone, &write_everywhere_);
  if (exact_) {
    exchange_partials(bucket);
    return {};
  }
  Tensor own = own_sum(sums);
  if (own.scalar_type() == precision_.reduce)
    return {dp_->all_reduce(own, ReduceOp::kSum), nullptr};
  Tensor travels = own.to(precision_.reduce);
  Work work = dp_->all_reduce(travels, ReduceOp::kSum);
  return {std::move(work), [own, travels] { own.copy_(travels); }};
}

PendingWork GradientSums::reduce_scatter(int bucket, int slice) {
  BucketSums& sums = buckets_[bucket];
  const int64_t numel = state_of(bucket).numel;
  Tensor in = in_rounds() ? ring_.slots[sums.slot].narrow(0, 0, numel) : own_sum(sums);
  if (in_rounds() && !slices_.has_slice(shard_->rank(), slice)) in.zero_();
  in = in.to(precision_.reduce);
  const bool first = slice == kNone || slice == 0;
  Tensor shard = sums.shard;
  if (first && shard.scalar_type() == precision_.reduce)
    return {shard_->reduce_scatter(shard, in, ReduceOp::kSum), [in] {}};
  Tensor part = at::empty({shard_count(bucket)}, in.options());
  Work work = shard_->reduce_scatter(part, in, ReduceOp::kSum);
  return {std::move(work), [=] {
            const c10::NoGradGuard no_grad;
            if (first)
              shard.copy_(part);
            else
              shard.add_(part);
          }};
}

// Without shared memory, each rank sends every other one the gradients of its shard.
void GradientSums::exchange_leaves(int bucket, int round) {
  BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  const int64_t numel = state_of(bucket).numel;
  const bool mine = slices_.has_slice(shard_->rank(), round);
  if (mine && seals_)
    look(ring_.seals[sums.slot].all_hold(shard, shard_->size()), shard_->rank());
  const Tensor in = ring_.slots[sums.slot].narrow(0, 0, mine ? numel : 0);
  std::vector<int64_t> out_rows, in_rows(shard_->size(), mine ? shard : 0);
  int64_t rows = 0;
  for (int m = 0; m < shard_->size(); ++m) {
    out_rows.push_back(slices_.has_slice(m, round) ? shard : 0);
    rows += out_rows.back();
  }
  Tensor out = at::empty({rows}, in.options());
  shard_->all_to_all(out, in, out_rows, in_rows).join();
  std::vector<Tensor> leaves(shard_->size());
  int64_t at = 0;
  for (int m = 0; m < shard_->size(); ++m) {
    if (out_rows[m] > 0) leaves[m] = out.narrow(0, at, shard);
    at += out_rows[m];
  }
  push_received(bucket, round, leaves);
  if (round + 1 < slices_.rounds()) return;
  std::vector<Tensor> stacked;
  for (int m = 0; m < shard_->size(); ++m)
    for (size_t i = 0; i < slices_.partials(m); ++i) {
      if (seals_) look(sums.stack_seals[m][i].all_hold(shard, 1), shard_->rank());
      stacked.push_back(sums.stacks[m][i]);
    }
  fold_group(sums, stacked, sums.shard);
  sums.shard_seal.close_all(shard, 1);
}

void GradientSums::push_received(int bucket, int round,
                                 const std::vector<Tensor>& leaves) {
  BucketSums& sums = buckets_[bucket];
  StateKernels& kernels = *home_.kernels;
  const int64_t shard = shard_count(bucket);
  for (int m = 0; m < shard_->size(); ++m) {
    if (!leaves[m].defined()) continue;
    const auto& stack = sums.stacks[m];
    const auto [top, merges] = slices_.push_of(m, round);
    for (int i = top - merges; seals_ && i < top; ++i)
      look(sums.stack_seals[m][i].all_hold(shard, 1), shard_->rank());
    push_on_stack(true, top, merges,
                  {.put = [&](int i) { kernels.widen(leaves[m], stack[i]); },
                   .add = [&](int i) { kernels.widen_add(leaves[m], stack[i]); },
                   .merge = [&](int i) { kernels.widen_add(stack[i + 1], stack[i]); }});
    if (seals_) sums.stack_seals[m][top - merges].close_all(shard, 1);
  }
}

// The partial sums of all ranks, each at the owner of its shard; then, at level 0, the
// sums of all shards everywhere.
void GradientSums::exchange_partials(int bucket) {
  BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  const auto own = static_cast<int64_t>(slices_.partials(shard_->rank()));
  const auto floats = at::TensorOptions(at::kFloat).device(home_.device());
  Tensor in = at::empty({shard_->size(), own, shard}, floats);
  for (int64_t i = 0; i < own; ++i) {
    if (seals_) look(sums.sum_seals[i].all_hold(shard, shard_->size()), shard_->rank());
    in.select(1, i).copy_(sums.sums[i].view({shard_->size(), shard}));
  }
  std::vector<int64_t> in_rows(shard_->size(), own * shard), out_rows;
  int64_t rows = 0;
  for (int m = 0; m < shard_->size(); ++m) {
    out_rows.push_back(static_cast<int64_t>(slices_.partials(m)) * shard);
    rows += out_rows.back();
  }
  Tensor out = at::empty({rows}, floats);
  shard_->all_to_all(out, in.view({-1}), out_rows, in_rows).join();
  Tensor result = level_ > 0 ? sums.shard : at::empty({shard}, floats);
  fold_group(sums, out.split(shard), result);
  if (level_ > 0) return sums.shard_seal.close_all(shard, 1);
  shard_->all_gather(sums.sums[0], result).join();
  if (seals_) sums.sum_seals[0].close_all(shard, shard_->size());
}

PendingWork GradientSums::reduce_replicas(int bucket) {
  const c10::NoGradGuard no_grad;
  if (!exact_)
    return {replicate_->all_reduce(buckets_[bucket].shard, ReduceOp::kSum), nullptr};
  for (const int number : uses_[bucket]) fold_replicas(number);
  add_uses(bucket);
  return {};
}

void GradientSums::fold_replicas(int bucket) {
  BucketSums& sums = buckets_[bucket];
  const auto& left = group_partials_;
  const auto most = static_cast<int64_t>(*std::max_element(left.begin(), left.end()));
  const int64_t shard = shard_count(bucket);
  look(sums.partials_seal.all_hold(shard, sums.partials.size(0)), shard_->rank());
  Tensor mine = at::zeros({most, shard}, sums.partials.options());
  mine.narrow(0, 0, sums.partials.size(0)).copy_(sums.partials);
  Tensor all = at::empty({replicate_->size(), most, shard}, mine.options());
  replicate_->all_gather(all, mine).join();
  std::vector<Tensor> inputs;
  for (int g = 0; g < replicate_->size(); ++g)
    for (size_t i = 0; i < left[g]; ++i)
      inputs.push_back(all[g][static_cast<int64_t>(i)]);
  home_.kernels->fold(*fold_replicas_, inputs, std::span(&sums.shard, 1));
  sums.shard_seal.close_all(shard, 1);
}

// Everywhere in one order, that of blocks.
void GradientSums::reduce_tied(int bucket, Communicator& places,
                               std::span<const int> order) {
  const c10::NoGradGuard no_grad;
  const Tensor own = sum(bucket);
  Tensor all = at::empty({places.size(), own.numel()}, own.options());
  places.all_gather(all, own).join();
  own.copy_(all[order[0]]);
  for (const int member : order.subspan(1)) own.add_(all[member]);
  close_sum(buckets_[bucket]);
}

PendingWork GradientSums::mirror(int bucket, Communicator& world) {
  const Mesh& mesh = slices_.mesh();
  const bool cut = mesh.size(Axis::kCut) > 1;
  const Axis axis = cut ? Axis::kCut : Axis::kTensor;
  Communicator& group = cut ? *shard_ : world;
  const Tensor& mirrored = buckets_[bucket].mirrored;
  const Transfer send{mesh.coordinate_beside(slices_.rank(), axis, 1),
                      sum(bucket).to(mirrored.scalar_type())};
  const Transfer receive{mesh.coordinate_beside(slices_.rank(), axis, -1), mirrored};
  return {group.exchange(std::span(&send, 1), std::span(&receive, 1)),
          [this, bucket, kept = send.tensor] { take_mirrored(bucket); }};
}

std::optional<int> GradientSums::blame(int bucket, int64_t index) const {
  const auto is_bad = [&](const Tensor& buffer) {
    return !std::isfinite(buffer[index].item<float>());
  };
  const BucketSums& sums = buckets_[bucket];
  for (int m = 0; peers_ && m < shard_->size(); ++m) {
    std::vector<Tensor> buffers =
        in_rounds() ? std::vector{ring_.peers[sums.slot][m]} : sums.peers[m];
    if (std::any_of(buffers.begin(), buffers.end(), is_bad)) return slices_.rank_of(m);
  }
  return {};
}

}  // namespace cohort
