// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/gradient_sums.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cohort/core/error.h"
#include "cohort/engine/replicas.h"
#include "cohort/step/buckets.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/slices.h"

namespace cohort {

bool GradientSums::can_visit(const RankGroups& groups) {
  return groups.shard->size() > 1 && !groups.replicate && shares_memory(*groups.shard);
}

GradientSums::GradientSums(const Schedule& schedule, const FlatState& state,
                           const RankGroups& groups, Options options)
    : meets_(schedule.group_along(kDataAxes) != kNone),
      level_(meets_ ? schedule.shard : 0),
      seals_(options.seals && schedule.exact && schedule.elastic),
      exact_(schedule.exact),
      slices_(schedule.mesh, groups.world->rank(), groups.shard->size(),
              schedule.slices),
      precision_(schedule.precision),
      state_(state),
      home_(state.home()),
      dp_(groups.dp),
      shard_(groups.shard),
      replicate_(groups.replicate),
      buckets_(state.buckets().size()) {
  const c10::NoGradGuard no_grad;
  // Loops over peers' memory are for float32 and less.
  if (shard_->size() > 1 && home_.on_host() && precision_.compute != at::kDouble)
    peers_ = dynamic_cast<PeerMemory*>(shard_);
  if (exact_) make_folds();
  // Nobody but its owner reads a shard of the partial sums, so the owner may put the
  // sum in the place of the first of them, on every rank.
  write_everywhere_ = [this](int bucket, int64_t begin, int64_t count, float* sum) {
    BucketSums& sums = buckets_[bucket];
    for (const auto& peer : sums.peers)
      std::copy_n(sum, count, peer[0].data_ptr<float>() + begin);
    if (!seals_) return;
    const auto hash =
        StretchSeal::hash_of(sum, count * static_cast<int64_t>(sizeof *sum));
    for (auto& seals : sums.peer_seals)
      seals[0].close_as(shard_count(bucket), begin, hash);
  };
  for (const Buffer* slot :
       planned(schedule, Buffer::Holds::kSlot, kNone, home_.memory))
    ring_.slots.push_back(home_.allocate(*shard_, *slot));
  make_uses(schedule, schedule.mesh.coordinate(groups.world->rank(), Axis::kPipe));
  for (int i = 0; i < static_cast<int>(uses_.size()); ++i) {
    if (!state.buckets()[i].trained) continue;
    for (int use = 0; use < static_cast<int>(uses_[i].size()); ++use) {
      BucketSums& sums = buckets_[uses_[i][use]];
      sums.tree = ExactTree(slices_.slices());
      sums.slot = schedule.buckets[i].slot;
      if (state.buckets()[i].own)
        allocate(schedule, uses_[i][use], use, options.visits);
    }
    if (state.buckets()[i].mirror) allocate_mirror(schedule, i);
  }
  if (peers_) map_peers();
  if (seals_) make_seals();
}

void GradientSums::make_uses(const Schedule& schedule, int place) {
  const auto count = static_cast<int>(buckets_.size());
  blocks_.resize(count);
  for (int i = 0; i < count; ++i) {
    buckets_[i].bucket = i;
    uses_.push_back({i});
    const int apart = state_.buckets()[i].own && state_.buckets()[i].trained
                          ? gradients_at(schedule, i, place)
                          : 1;
    if (apart > 1) blocks_[i] = uses_at(schedule, i, place);
    for (int use = 1; use < apart; ++use) {
      uses_[i].push_back(static_cast<int>(buckets_.size()));
      buckets_.emplace_back().bucket = i;
    }
  }
}

const BucketState& GradientSums::state_of(int number) const {
  return state_.buckets()[buckets_[number].bucket];
}

int GradientSums::use_of(int bucket, int block) const {
  const auto& blocks = blocks_[bucket];
  const auto found = std::find(blocks.begin(), blocks.end(), block);
  return found == blocks.end() ? 0 : static_cast<int>(found - blocks.begin());
}

// One for the shard group, and one for what the groups of a hybrid run are left with.
void GradientSums::make_folds() {
  const auto mine = slices_.nodes();
  if (!home_.on_host() && mine.size() > kernels::kMostNodes)
    throw ConfigError(text("[engine] --exact on GPUs with ", mine.size(),
                           " partial sums of slices in a group; legal: at most ",
                           kernels::kMostNodes, ", as with fewer slices"));
  fold_ = std::make_unique<TreeFold>(slices_.slices(), mine);
  if (!replicate_) return;
  std::vector<TreeNode> nodes;
  for (int g = 0; g < replicate_->size(); ++g) {
    const TreeFold group(slices_.slices(), slices_.nodes_of_group(g));
    nodes.insert(nodes.end(), group.left().begin(), group.left().end());
    group_partials_.push_back(group.left().size());
  }
  fold_replicas_ = std::make_unique<TreeFold>(slices_.slices(), nodes);
}

// Each use has an equal part of what is planned; but leaves that take turns are planned
// for the others alone.
void GradientSums::allocate(const Schedule& schedule, int bucket, int use,
                            bool visits) {
  BucketSums& sums = buckets_[bucket];
  const auto all = [&](Buffer::Holds holds) {
    auto found = planned(schedule, holds, sums.bucket, home_.memory);
    const size_t part =
        found.size() / static_cast<size_t>(most_gradients(schedule, sums.bucket));
    found.erase(found.begin(), found.begin() + static_cast<int64_t>(part) * use);
    found.resize(part);
    return found;
  };
  if (in_rounds() && use > 0) {
    const auto leaves =
        planned(schedule, Buffer::Holds::kLeaf, sums.bucket, home_.memory);
    sums.slot = static_cast<int>(ring_.slots.size());
    ring_.slots.push_back(home_.allocate(*shard_, *leaves[use - 1]));
  }
  const auto first = [&](Buffer::Holds holds) {
    const auto found = all(holds);
    return found.empty() ? Tensor() : home_.allocate(*shard_, *found[0]);
  };
  sums.leaf = first(Buffer::Holds::kLeaf);
  for (const Buffer* partial : all(Buffer::Holds::kPartial))
    sums.sums.push_back(home_.allocate(*shard_, *partial));
  // As many as the group needs that needs most: others leave some of the last.
  const auto stacks = all(Buffer::Holds::kStack);
  for (size_t next = 0, m = 0; next < stacks.size(); ++m) {
    const int member = static_cast<int>(m);
    const bool last = member + 1 == shard_->size();
    auto& stack = sums.stacks.emplace_back();
    for (int i = stack_height(slices_.of_member(member), slices_.slices());
         next < stacks.size() && (last || i > 0); --i, ++next)
      stack.push_back(home_.allocate(*shard_, *stacks[next]));
  }
  if (const auto nodes = all(Buffer::Holds::kNodes); !nodes.empty())
    sums.partials = home_.allocate(*shard_, *nodes[0])
                        .view({-1, shard_count(bucket)})
                        .narrow(0, 0, static_cast<int64_t>(fold_->left().size()));
  sums.shard = first(Buffer::Holds::kSum);
  // A step whose updates use sums as they are made, in an executor that does not.
  const bool needs = level_ > 0 && !visits && !sums.shard.defined();
  const Buffer shard{.dtype = sum_type(schedule),
                     .numel = shard_count(bucket),
                     .memory = home_.memory};
  if (needs) sums.shard = home_.allocate(*shard_, shard);
}

void GradientSums::allocate_mirror(const Schedule& schedule, int bucket) {
  for (const Buffer* sum :
       planned(schedule, Buffer::Holds::kMirrorSum, bucket, home_.memory))
    buckets_[bucket].mirrored = home_.allocate(*shard_, *sum);
}

void GradientSums::take_mirrored(int bucket) {
  BucketSums& sums = buckets_[bucket];
  sums.mirrored_seal.close_all(sums.mirrored.numel(), 1);
}

void GradientSums::map_peers() {
  for (const auto& slot : ring_.slots) ring_.peers.push_back(peers_->map_peers(slot));
  for (auto& sums : buckets_) {
    if (in_rounds() || (sums.sums.empty() && !sums.leaf.defined())) continue;
    sums.peers.resize(shard_->size());
    std::vector<Tensor> shown = sums.sums;
    if (shown.empty()) shown.push_back(sums.leaf);
    for (const auto& buffer : shown) {
      const auto views = peers_->map_peers(buffer);
      for (int m = 0; m < shard_->size(); ++m) sums.peers[m].push_back(views[m]);
    }
  }
}

// Peers that read a buffer read its hashes, too.
void GradientSums::make_seals() {
  const int size = shard_->size();
  int64_t largest = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    BucketSums& sums = buckets_[i];
    if (!state_of(static_cast<int>(i)).trained) continue;
    const int64_t shard = shard_count(static_cast<int>(i));
    const int64_t table = StretchSeal::table_size(shard, size);
    largest = std::max(largest, table);
    for (size_t b = 0; b < sums.sums.size(); ++b) {
      const Tensor hashes = shard_->allocate({table}, at::kLong);
      sums.sum_seals.emplace_back(sums.sums[b], hashes);
      if (!peers_) continue;
      const auto views = peers_->map_peers(hashes);
      sums.peer_seals.resize(size);
      for (int m = 0; m < size; ++m)
        sums.peer_seals[m].emplace_back(sums.peers[m][b], views[m]);
    }
    for (const auto& stack : sums.stacks) {
      auto& seals = sums.stack_seals.emplace_back();
      for (const auto& sum : stack) seals.push_back(seal_here(sum, shard));
    }
    if (sums.partials.defined())
      sums.partials_seal = seal_here(sums.partials.view({-1}), shard);
    if (sums.shard.defined()) sums.shard_seal = seal_here(sums.shard, shard);
    if (sums.mirrored.defined()) sums.mirrored_seal = seal_here(sums.mirrored, shard);
  }
  for (size_t slot = 0; slot < ring_.slots.size(); ++slot) {
    const Tensor hashes = shard_->allocate({largest}, at::kLong);
    ring_.seals.emplace_back(ring_.slots[slot], hashes);
    if (!peers_) continue;
    const auto views = peers_->map_peers(hashes);
    auto& seals = ring_.peer_seals.emplace_back();
    for (int m = 0; m < size; ++m) seals.emplace_back(ring_.peers[slot][m], views[m]);
  }
}

StretchSeal GradientSums::seal_here(const Tensor& buffer, int64_t shard) const {
  const int64_t size = StretchSeal::table_size(shard, buffer.numel() / shard);
  return {buffer, at::zeros({size}, at::kLong)};
}

uint64_t GradientSums::hash_of_born(int index, int slice, int use) const {
  const FlatParameter& place = state_.places()[index];
  return tensor_hash(leaf(place.bucket, slice, use)
                         .memory.narrow(0, place.offset, place.parameter.numel()));
}

void GradientSums::close_born(int place, int slice, int use) {
  born_[{place, use}] = hash_of_born(place, slice, use);
}

void GradientSums::open_born(int place, int slice, int use) {
  const auto born = born_.extract({place, use});
  if (born) look(born.mapped() == hash_of_born(place, slice, use), shard_->rank());
}

void GradientSums::look(bool holds, int member) {
  if (!holds && broken_.empty())
    broken_ = text("a gradient on rank ", slices_.rank_of(member));
}

std::string GradientSums::broken_sum(int bucket) const {
  const BucketSums& sums = buckets_[bucket];
  const int64_t shard = shard_count(bucket);
  bool holds = true;
  if (sums.shard.defined())
    holds = sums.shard_seal.all_hold(shard, 1);
  else if (!sums.sum_seals.empty())
    holds = sums.sum_seals[0].all_hold(shard, shard_->size());
  if (sums.mirrored.defined()) holds = holds && sums.mirrored_seal.all_hold(shard, 1);
  return holds ? "" : text("a sum of gradients of bucket ", bucket);
}

// A Leaf lies in the slot of its bucket, or is added up where it is born. Sums of
// shards have memory of their own; the others are left where this rank added up its
// slices.
std::vector<Tensor> GradientSums::memory_of(const Value& value) const {
  const bool own = state_.buckets()[value.of].own;
  if (value.what == What::kMirrored || !own) return {buckets_[value.of].mirrored};
  std::vector<Tensor> all;
  const auto add = [&](const std::vector<Tensor>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const int number : uses_[value.of]) {
    const BucketSums& sums = buckets_[number];
    if (value.what == What::kLeaf && in_rounds()) {
      add({ring_.slots[sums.slot]});
    } else if (value.what == What::kSum && sums.shard.defined()) {
      add({sums.shard, sums.partials});
      for (const auto& stack : sums.stacks) add(stack);
    } else {
      add(sums.sums);
      add({sums.leaf});
    }
  }
  return all;
}

std::vector<Tensor> GradientSums::memory(int bucket) const {
  std::vector<Tensor> all;
  std::set<const void*> known;
  for (const What what : {What::kPartial, What::kSum, What::kMirrored, What::kLeaf})
    for (const Tensor& tensor : memory_of({what, bucket}))
      if (tensor.defined() && known.insert(tensor.const_data_ptr()).second)
        all.push_back(tensor);
  return all;
}

int64_t GradientSums::shard_count(int bucket) const {
  return state_of(bucket).numel / shard_->size();
}

void GradientSums::begin_step() {
  for (auto& sums : buckets_) sums.tree = ExactTree(slices_.slices());
  born_.clear();
  broken_.clear();
}

GradientSums::Leaf GradientSums::leaf(int bucket, int slice, int use) const {
  const BucketSums& sums = buckets_[uses_[bucket][use]];
  if (in_rounds()) return {ring_.slots[sums.slot], false};
  if (!sums.leaf.defined()) return {sums.sums[sums.tree.nodes().size()], false};
  return {sums.leaf, sums.sums.empty() && slice > 0};
}

void GradientSums::finish_slice(int bucket, int slice, int use) {
  BucketSums& sums = buckets_[uses_[bucket][use]];
  const int64_t shard = shard_count(bucket), shards = shard_->size();
  for (size_t p = 0; seals_ && p < state_.places().size(); ++p)
    if (state_.places()[p].bucket == bucket) open_born(static_cast<int>(p), slice, use);
  if (seals_ && in_rounds()) ring_.seals[sums.slot].close_all(shard, shards);
  if (in_rounds() || sums.sums.empty()) return;
  // As one sum, or one after another as the tree says.
  if (!exact_) return push_slice(sums, slice > 0 ? 1 : 0, slice > 0 ? 1 : 0);
  const int top = static_cast<int>(sums.tree.nodes().size());
  const int merges = sums.tree.push({0, slices_.own().begin + slice});
  for (int i = top - merges; seals_ && i < top; ++i)
    look(sums.sum_seals[i].all_hold(shard, shards), shard_->rank());
  push_slice(sums, top, merges);
  if (seals_) sums.sum_seals[top - merges].close_all(shard, shards);
  // A rank without others to sum with. The first block is the last to come.
  if (!meets_ && use == 0 && slice + 1 == slices_.rounds()) add_uses(bucket);
}

// In the order of blocks.
void GradientSums::add_uses(int bucket) {
  const c10::NoGradGuard no_grad;
  for (size_t use = 1; use < uses_[bucket].size(); ++use)
    home_.kernels->widen_add(sum(uses_[bucket][use]), sum(bucket));
  if (keeps_apart(bucket)) close_sum(buckets_[bucket]);
}

// What this rank has of the sum is as it shall be.
void GradientSums::close_sum(BucketSums& sums) {
  if (!seals_) return;
  const int64_t shard = shard_count(sums.bucket);
  if (sums.shard.defined())
    sums.shard_seal.close_all(shard, 1);
  else
    sums.sum_seals[0].close_all(shard, shard_->size());
}

// The leaf, or what was born on top of the sums of this rank's slices.
void GradientSums::push_slice(BucketSums& sums, int top, int merges) const {
  StateKernels& kernels = *home_.kernels;
  push_on_stack(
      sums.leaf.defined(), top, merges,
      {.put = [&](int i) { kernels.widen(sums.leaf, sums.sums[i]); },
       .add = [&](int i) { kernels.widen_add(sums.leaf, sums.sums[i]); },
       .merge = [&](int i) { kernels.widen_add(sums.sums[i + 1], sums.sums[i]); }});
}

}  // namespace cohort
