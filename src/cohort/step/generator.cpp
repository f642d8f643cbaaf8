// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/generator.h"

#include <map>
#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

int64_t numel_in_bucket(const BlockSpec& block) {
  int64_t sum = 0;
  for (const auto& parameter : block.parameters) sum += padded(parameter.numel());
  return sum;
}

// Blocks from last to first, as backward reaches them; a bucket has one dtype.
std::vector<Bucket> make_buckets(std::span<const BlockSpec> blocks, int64_t limit) {
  std::vector<Bucket> buckets;
  for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b) {
    const int64_t numel = numel_in_bucket(blocks[b]);
    if (numel == 0) continue;
    const auto dtype = blocks[b].parameters.front().dtype;
    const bool fits = !buckets.empty() && buckets.back().dtype == dtype &&
                      (buckets.back().numel + numel) * kGradBytes <= limit;
    if (!fits) buckets.push_back({.dtype = dtype});
    buckets.back().blocks.push_back(b);
    buckets.back().numel += numel;
  }
  return buckets;
}

// Writes the list of one role, action by action.
class DataParallelList {
 public:
  DataParallelList(std::span<const BlockSpec> blocks, std::span<const Bucket> buckets,
                   int ranks, bool overlap_updates)
      : blocks_(blocks),
        buckets_(buckets),
        communicates_(ranks > 1),
        overlap_updates_(overlap_updates) {}

  std::vector<Action> write(int slices) {
    for (int s = 0; s < slices; ++s) {
      const bool last = s + 1 == slices;
      const int done = forward(s);
      if (last) loss_known_ = reduce(kLossBucket, kLossBytes, done);
      backward(s, last);
    }
    finish();
    return std::move(actions_);
  }

 private:
  int add(Action action) {
    actions_.push_back(std::move(action));
    return static_cast<int>(actions_.size()) - 1;
  }

  int forward(int slice) {
    int done = kNone;
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b)
      done = add({.kind = ActionKind::kForward, .block = b, .slice = slice});
    return done;
  }

  // Returns the action after which the bucket is the same on all ranks.
  int reduce(int bucket, int64_t bytes, int after) {
    if (!communicates_) return after;
    return add({.kind = ActionKind::kReduce,
                .lane = kComputeLane + 1,
                .bucket = bucket,
                .bytes = bytes,
                .waits = {after}});
  }

  // In the last slice a bucket is reduced as soon as its gradients are whole. Its
  // update follows one bucket later, so that a late rank holds nobody up.
  void backward(int slice, bool last) {
    size_t open = 0;
    for (int b = static_cast<int>(blocks_.size()) - 1; b >= 0; --b) {
      const int done =
          add({.kind = ActionKind::kBackward, .block = b, .slice = slice});
      if (!last || open == buckets_.size() || buckets_[open].blocks.back() != b)
        continue;
      reduced_.push_back(
          reduce(static_cast<int>(open), buckets_[open].numel * kGradBytes, done));
      if (overlap_updates_) update_until(open);
      ++open;
    }
  }

  void update_until(size_t end) {
    for (; updated_ < end; ++updated_)
      add({.kind = ActionKind::kUpdate,
           .bucket = static_cast<int>(updated_),
           .waits = {loss_known_, reduced_[updated_]}});
  }

  void finish() {
    update_until(buckets_.size());
    bool statistics = false;
    for (const auto& block : blocks_) statistics |= block.keeps_statistics;
    if (statistics)
      add({.kind = ActionKind::kFoldBuffers,
           .lane = communicates_ ? kComputeLane + 1 : kComputeLane,
           .waits = {static_cast<int>(actions_.size()) - 1}});
    add({.kind = ActionKind::kCommit,
         .waits = {static_cast<int>(actions_.size()) - 1}});
  }

  std::span<const BlockSpec> blocks_;
  std::span<const Bucket> buckets_;
  bool communicates_;
  bool overlap_updates_;
  std::vector<Action> actions_;
  int loss_known_ = kNone;
  std::vector<int> reduced_;  // by bucket
  size_t updated_ = 0;        // buckets before this one have their Update
};

void refuse_what_is_not_there(const Layout& layout) {
  if (layout.tp != 1 || layout.pp != 1)
    throw ConfigError(text("[step] layout ", layout.text(),
                           ": tp and pp come with a later release; legal now: dp"));
  if (layout.shard != 0 || layout.replicate != 1)
    throw ConfigError(text("[step] layout ", layout.text(),
                           ": shard levels 1-3 and replicate come with a later release; "
                           "legal now: shard=0"));
}

}  // namespace

int64_t padded(int64_t numel) {
  return (numel + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<BlockSpec> specs_of(const Chain& chain) {
  std::vector<BlockSpec> specs;
  for (const auto& block : chain.blocks) {
    BlockSpec spec{.name = block->name()};
    for (const auto& [name, tensor] : block->parameters())
      spec.parameters.push_back(spec_of(name, tensor));
    spec.keeps_statistics = !block->buffers().empty();
    specs.push_back(std::move(spec));
  }
  return specs;
}

Schedule generate(std::span<const BlockSpec> blocks, const Layout& layout,
                  const GeneratorOptions& options) {
  refuse_what_is_not_there(layout);
  Schedule schedule{.world = layout.world(),
                    .buckets = make_buckets(blocks, options.bucket_bytes)};
  std::map<int, std::vector<int>> ranks_by_slices;
  for (int r = 0; r < layout.dp; ++r)
    ranks_by_slices[slices_of(r, layout.dp, options.slices).count()].push_back(r);
  for (auto& [slices, ranks] : ranks_by_slices) {
    DataParallelList list(blocks, schedule.buckets, layout.dp, options.overlap_updates);
    schedule.roles.push_back(
        {.ranks = std::move(ranks), .slices = slices, .actions = list.write(slices)});
  }
  return schedule;
}

}  // namespace cohort
