// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/shard_update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_kernels.h"
#include "cohort/engine/cuda/device_table.h"

namespace cohort {
namespace {

using kernels::Tile;

const char* device_type(at::ScalarType dtype) {
  if (dtype == at::kFloat) return "float";
  COHORT_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "no updates with dtype ",
               c10::toString(dtype));
  return dtype == at::kBFloat16 ? "Bfloat16" : "Half";
}

// The name of the rule in kernels/updates.cuh.
std::string device_rule(const UpdateOptions& rule) {
  if (rule.name == "adam") return "Adam";
  if (rule.name == "adamw") return "AdamW";
  if (rule.name == "lamb") return "Lamb";
  const std::string family = rule.name == "sgd" ? "Sgd" : "Lars";
  if (rule.momentum == 0) return family + "Plain";
  return family + (rule.nesterov ? "Nesterov" : "Momentum");
}

// Tiles end at multiples of `size`: so that all but the first of a range are aligned as
// the shard is. Slots count on from that of the range.
void add_tiles(const UpdateRange& range, int index, int64_t origin, int64_t size,
               std::vector<Tile>& tiles) {
  int64_t slot = range.slot;
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t end = std::min(range.end, origin + ((at - origin) / size + 1) * size);
    tiles.push_back({at, static_cast<int32_t>(end - at), index, slot++});
    at = end;
  }
}

}  // namespace

KernelProgram update_program(const ShardUpdateOptions& options) {
  const auto rule = make_update_rule(options.rule);  // refuses unknown names
  const std::string name = device_rule(options.rule);
  const char* const gradient = device_type(options.gradient);
  const char* const published =
      options.published ? device_type(*options.published) : "Nothing";
  KernelProgram program{"updates", {}};
  program.kernels.push_back(
      {text("update<", name, ", ", gradient, ", ", published, ">"), "UpdateArguments"});
  if (rule->reductions() > 0)
    program.kernels.push_back(
        {text("reduce<", name, ", ", gradient, ">"), "UpdateArguments"});
  return program;
}

DeviceShardUpdate::DeviceShardUpdate(KernelLauncher& launcher, int kernel,
                                     const ShardUpdateOptions& options)
    : launcher_(launcher),
      kernel_(kernel),
      gradient_(options.gradient),
      published_(options.published),
      rule_{options.rule.momentum, options.rule.beta1, options.rule.beta2,
            options.rule.eps, options.rule.trust} {
  const auto rule = make_update_rule(options.rule);
  states_ = rule->states().size();
  reduces_ = rule->reductions() > 0;
  std::vector<kernels::RangeTraits> ranges;
  std::vector<Tile> tiles, chunks;
  for (const UpdateRange& range : options.ranges) {
    const bool adapts = reduces_ && range.traits.adapts;
    const int index = static_cast<int>(ranges.size());
    ranges.push_back({range.traits.weight_decay, adapts ? range.place : -1});
    add_tiles(range, index, 0, kernels::kTile, tiles);
    if (adapts) add_tiles(range, index, range.begin, kernels::kNormChunk, chunks);
    end_ = std::max(end_, range.end);
  }
  ranges_ =
      device_table(std::span<const kernels::RangeTraits>(ranges), launcher.device());
  tiles_ = device_table(std::span<const Tile>(tiles), launcher.device());
  chunks_ = device_table(std::span<const Tile>(chunks), launcher.device());
}

void DeviceShardUpdate::reduce(const ShardMemory& shard, const Tensor& gradient,
                               const Tensor& numbers, const Tensor& sums) {
  if (!reduces_) return;
  kernels::UpdateArguments given = arguments(shard, gradient, numbers);
  given.tiles = static_cast<const Tile*>(chunks_.const_data_ptr());
  given.num_tiles = chunks_.size(0);
  given.sums = sums.data_ptr<double>();
  constexpr int64_t kAtOnce = kernels::kThreads / 8;  // lanes of a chunk
  launcher_.launch(kernel_ + 1, (given.num_tiles + kAtOnce - 1) / kAtOnce, &given);
}

void DeviceShardUpdate::apply(const ShardMemory& shard, const Tensor& gradient,
                              const Tensor& numbers, const Tensor& totals) {
  kernels::UpdateArguments given = arguments(shard, gradient, numbers);
  given.tiles = static_cast<const Tile*>(tiles_.const_data_ptr());
  given.num_tiles = tiles_.size(0);
  if (reduces_ && totals.defined()) given.totals = totals.const_data_ptr<double>();
  launcher_.launch(kernel_, given.num_tiles, &given);
}

kernels::UpdateArguments DeviceShardUpdate::arguments(const ShardMemory& shard,
                                                      const Tensor& gradient,
                                                      const Tensor& numbers) const {
  const auto fits = [&](const Tensor& tensor, at::ScalarType dtype) {
    return tensor.numel() >= end_ && tensor.scalar_type() == dtype &&
           tensor.is_contiguous() && tensor.device() == launcher_.device();
  };
  bool all = fits(shard.master, at::kFloat) && fits(gradient, gradient_) &&
             shard.states.size() == states_ &&
             shard.published.defined() == published_.has_value();
  if (published_) all = all && fits(shard.published, *published_);
  for (const Tensor& state : shard.states) all = all && fits(state, at::kFloat);
  COHORT_CHECK(all, "tensors of another shard: ", shard.master.numel(), " elements, ",
               shard.states.size(), " states; expected ", end_, " and ", states_);
  kernels::UpdateArguments given{};
  given.master = shard.master.data_ptr<float>();
  for (size_t k = 0; k < states_; ++k)
    given.states[k] = shard.states[k].data_ptr<float>();
  given.gradient = gradient.const_data_ptr();
  given.published = published_ ? shard.published.data_ptr() : nullptr;
  given.ranges = static_cast<const kernels::RangeTraits*>(ranges_.const_data_ptr());
  given.numbers = static_cast<const StepNumbers*>(numbers.const_data_ptr());
  given.rule = rule_;
  return given;
}

}  // namespace cohort
