// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/generator.h"

#include <map>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/buffers.h"
#include "cohort/step/derive.h"
#include "cohort/step/generators/generators.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

struct Generator {
  bool (*makes)(const Schedule& schedule, const GeneratorOptions& options);
  void (*write)(ListWriter& list);
};

// The first that makes what is asked for.
constexpr Generator kGenerators[] = {
    {[](const Schedule&, const GeneratorOptions& options) {
       return options.forward_only;
     },
     write_forward_only},
    {[](const Schedule& schedule, const GeneratorOptions&) {
       return schedule.shard == 3;
     },
     write_sharded_parameters},
    {[](const Schedule& schedule, const GeneratorOptions&) {
       return schedule.shard < 3;
     },
     write_whole_parameters},
};

void check_layout(const Layout& layout, const GeneratorOptions& options) {
  if (layout.tp != 1 || layout.pp != 1)
    throw ConfigError(text("[step] layout ", layout.text(),
                           ": tp and pp come with a later release; legal now: dp"));
  if (layout.replicate > 1 && layout.shard == 0)
    throw ConfigError(text("[step] layout ", layout.text(),
                           ": replicate is for sharded state; legal: shard=1, 2 or 3 "
                           "with it, or replicate=1"));
  if (options.prefetch < 0)
    throw ConfigError(
        text("[step] prefetch=", options.prefetch, "; legal: 0 and more"));
}

// An evaluation changes nothing that could be lost.
GeneratorOptions with_implied(GeneratorOptions options) {
  options.elastic &= !options.forward_only;
  options.vote |= options.elastic;
  return options;
}

// Copies of a state that nobody shares are no copies.
Mesh make_mesh(Layout layout) {
  if (layout.replicate == layout.dp) layout.replicate = 1;
  return Mesh(layout);
}

std::vector<Group> make_groups(const Mesh& mesh) {
  std::vector<Group> groups;
  if (mesh.size(kDataAxes) > 1) groups.push_back({.name = "dp", .axes = kDataAxes});
  if (mesh.size(Axis::kReplicate) == 1) return groups;
  groups.push_back({.name = "shard", .axes = {Axis::kCut}});
  groups.push_back({.name = "replicate", .axes = {Axis::kReplicate}});
  return groups;
}

// Copies of a hybrid run are second ones already, and without a group there is nobody.
void cut_state(Schedule& schedule) {
  for (auto& bucket : schedule.buckets) bucket.cut = {Axis::kCut};
  if (schedule.elastic && schedule.mesh.size(Axis::kReplicate) == 1 &&
      schedule.mesh.size(Axis::kCut) > 1)
    schedule.groups[0].mirrors = true;
}

// Without anybody to cut it for, state stays whole.
Schedule make_frame(std::span<const BlockSpec> blocks, const Layout& layout,
                    const GeneratorOptions& options) {
  const int shards = layout.dp / layout.replicate;
  const Mesh mesh = make_mesh(layout);
  Schedule schedule{.mesh = mesh,
                    .slices = options.slices,
                    .shard = options.offload_parameters ? 3
                             : shards > 1               ? layout.shard
                                                        : 0,
                    .exact = options.exact,
                    .elastic = options.elastic,
                    .runs_ahead = options.run_ahead,
                    .precision = options.precision,
                    .groups = make_groups(mesh)};
  schedule.channels = channels_for(schedule.groups);
  schedule.keeps_sums =
      !options.shares_memory || layout.replicate > 1 || options.clip || options.vote;
  schedule.buckets = make_buckets(blocks, {.limit_bytes = options.bucket_bytes,
                                           .one_a_block = schedule.shard == 3,
                                           .parts = shards});
  if (schedule.shard > 0) cut_state(schedule);
  const int64_t width = size_of(options.precision.compute);
  for (auto& bucket : schedule.buckets)
    bucket.joined = schedule.shard == 3 && options.joins_at > 0 &&
                    bucket.numel / shards * width % options.joins_at == 0;
  for (const auto& block : blocks) schedule.blocks.push_back(block.name);
  return schedule;
}

StepPlan make_step_plan(std::span<const BlockSpec> blocks, Schedule& schedule,
                        const GeneratorOptions& options) {
  const auto uses = bucket_uses(blocks, schedule.buckets);
  StepPlan plan{.blocks = blocks,
                .schedule = schedule,
                .options = options,
                .uses = uses,
                .last_to_add = last_to_add(uses, schedule.buckets.size()),
                .rounds = schedule.mesh.rounds(options.slices)};
  plan.copy_lane = schedule.lanes() - 1;
  if (schedule.shard == 3) plan.gather_lane = plan.copy_lane;  // of one rank
  if (schedule.groups.empty()) return plan;
  plan.dp_lane = 1;
  plan.shard_lane = plan.gather_lane = schedule.groups.size() > 1 ? 2 : 1;
  plan.replicate_lane = schedule.groups.size() > 1 ? 3 : kComputeLane;
  return plan;
}

// So many reductions may be under way before a gradient waits for memory.
constexpr int kReductionsAtOnce = 2;

void plan_memory(Schedule& schedule, const GeneratorOptions& options) {
  assign_buffers(schedule, kReductionsAtOnce);
  plan_state(schedule, options.optimizer_states);
  if (options.memory == MemoryIn::kHost) return;
  schedule.computes_in = Buffer::Place::kDevice;
  if (options.memory == MemoryIn::kBoth) return plan_copies(schedule);
  for (auto& buffer : schedule.buffers) buffer.place = Buffer::Place::kDevice;
}

}  // namespace

int64_t padded(int64_t numel) { return (numel + kChunk - 1) / kChunk * kChunk; }

std::vector<BlockSpec> specs_of(const Chain& chain) {
  std::vector<BlockSpec> specs;
  for (const auto& block : chain.blocks) {
    BlockSpec spec{.name = block->name()};
    for (const auto& [name, tensor] : block->parameters()) {
      spec.parameters.push_back(spec_of(name, tensor));
      spec.frozen.push_back(!tensor.requires_grad());
    }
    spec.keeps_statistics = !block->buffers().empty();
    specs.push_back(std::move(spec));
  }
  return specs;
}

Schedule generate(std::span<const BlockSpec> blocks, const Layout& layout,
                  const GeneratorOptions& asked) {
  const GeneratorOptions options = with_implied(asked);
  check_layout(layout, options);
  if (!blocks.empty())  // else the layout alone is in question
    options.recompute.require_within(static_cast<int>(blocks.size()), "step.recompute");
  Schedule schedule = make_frame(blocks, layout, options);
  std::map<int, std::vector<int>> ranks_by_slices;
  for (int r = 0; r < schedule.world(); ++r)
    ranks_by_slices[schedule.mesh.slices(r, options.slices).count()].push_back(r);
  const StepPlan plan = make_step_plan(blocks, schedule, options);
  for (const auto& generator : kGenerators) {
    if (!generator.makes(schedule, options)) continue;
    std::vector<Role> roles;
    for (auto& [slices, ranks] : ranks_by_slices) {
      ListWriter list(plan, slices);
      generator.write(list);
      roles.push_back({.ranks = ranks, .slices = slices, .actions = list.take()});
    }
    schedule.roles = std::move(roles);
    plan_memory(schedule, options);
    for (auto& role : schedule.roles)
      derive_waits(role.actions, schedule.lanes(), schedule.runs_ahead);
    return schedule;
  }
  throw BugError(text("[step] no generator for ", layout.text()));
}

}  // namespace cohort
