// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/generator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/buffers.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/derive.h"
#include "cohort/step/generators/composers.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/stages.h"

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
  if (layout.replicate > 1 && layout.shard == 0)
    throw ConfigError(text("[step] layout ", layout.text(),
                           ": replicate is for sharded state; legal: shard=1, 2 or 3 "
                           "with it, or replicate=1"));
  if (layout.cp > 1)
    throw ConfigError(
        text("[step] layout ", layout.text(), ": no layer computes a part of each ",
             "sequence along cp; legal: cp=1, and tp with model.sequence_parallel"));
  if (layout.ep > 1)
    throw ConfigError(
        text("[step] layout ", layout.text(), ": no layer has experts; legal: ep=1"));
  require_places(layout.pp, options.pipeline);
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

// Not every rank has all of the model.
bool has_parts(const Mesh& mesh) {
  return mesh.size(AxisSet{Axis::kPipe, Axis::kTensor}) > 1;
}

std::vector<Group> make_groups(const Mesh& mesh, bool meets_alone) {
  std::vector<Group> groups;
  AxisSet all = kDataAxes;
  for (const Axis axis : {Axis::kPipe, Axis::kTensor})
    if (mesh.size(axis) > 1) all = all | AxisSet{axis};
  if (has_parts(mesh)) groups.push_back({.name = "all", .axes = all});
  if (mesh.size(kDataAxes) > 1 || meets_alone)
    groups.push_back({.name = "dp", .axes = kDataAxes});
  if (mesh.size(Axis::kReplicate) > 1) {
    groups.push_back({.name = "shard", .axes = {Axis::kCut}});
    groups.push_back({.name = "replicate", .axes = {Axis::kReplicate}});
  }
  if (mesh.size(Axis::kTensor) > 1)
    groups.push_back({.name = "tp", .axes = kTensorAxis});
  return groups;
}

int group_number(const Schedule& schedule, std::string_view name) {
  for (int g = 0; g < static_cast<int>(schedule.groups.size()); ++g)
    if (schedule.groups[g].name == name) return g;
  return kNone;
}

void cut_state(Schedule& schedule) {
  for (auto& bucket : schedule.buckets) bucket.cut = {Axis::kCut};
}

// What one rank alone has, another has, too: the next that the state is cut between, or
// the next along the pipeline, or the next that has parts of the same tensors. Copies
// of a hybrid run are second ones already, and without a group there is nobody.
void add_mirrors(Schedule& schedule) {
  const Mesh& mesh = schedule.mesh;
  const bool cut = schedule.shard > 0 && mesh.size(Axis::kCut) > 1;
  if (cut && mesh.size(Axis::kReplicate) == 1)
    schedule.groups[group_number(schedule, "dp")].mirrors = true;
  if (mesh.size(kDataAxes) == 1 && has_parts(mesh))
    schedule.groups[group_number(schedule, "all")].mirrors = true;
}

// Outputs one way, gradients the other; and sums of gradients round the ring, to
// the rank that holds a second copy. Round the ring goes all of it where the last place
// has a next stage: the first place's.
void add_links(Schedule& schedule) {
  const int places = schedule.mesh.size(Axis::kPipe);
  const bool ring = static_cast<int>(schedule.stages.size()) > places;
  const auto link = [&](int from, int to) {
    schedule.channels.push_back({.kind = Channel::Kind::kLink, .from = from, .to = to});
  };
  const int links = ring ? places : places - 1;
  for (int p = 0; p < links; ++p) link(p, (p + 1) % places);
  for (int p = 0; p < links; ++p) link((p + 1) % places, p);
  if (has_mirrors(schedule) && mirror_axis(schedule) == Axis::kPipe)
    for (int p = 0; p < places; ++p) link(p, (p + 1) % places);
}

// Places that have a parameter together are a group, for the sum of its gradients.
void add_tied_groups(Schedule& schedule) {
  for (size_t i = 0; i < schedule.buckets.size(); ++i) {
    const auto places = places_of(schedule, schedule.buckets[i]);
    const bool known = std::ranges::any_of(
        schedule.groups, [&](const Group& group) { return group.places == places; });
    if (places.size() > 1 && !known)
      schedule.groups.push_back(
          {.name = text("tied", i), .axes = {Axis::kPipe}, .places = places});
  }
}

// Uses add up in their order, which places of several cannot keep.
void check_tied(const Schedule& schedule) {
  for (size_t i = 0; schedule.exact && i < schedule.buckets.size(); ++i) {
    const auto places = places_of(schedule, schedule.buckets[i]);
    const size_t uses = schedule.buckets[i].blocks.size();
    if (is_tied(schedule.buckets[i]) && places.size() > 1 && uses > 2 &&
        places.size() < uses)
      throw ConfigError(text("[step] blocks ", schedule.buckets[i].blocks[0], " and ",
                             uses - 1,
                             " others share a parameter, and two of them are "
                             "at one place of ",
                             places.size(),
                             "; legal with --exact: "
                             "each at its own, or all at one"));
  }
}

// Members of a group make the same calls, of one size, for slices that they compute at
// the same time.
void check_calls(std::span<const BlockSpec> blocks, const Schedule& schedule) {
  const int ranks = schedule.mesh.size(kDataAxes);
  for (const auto& block : blocks)
    for (const auto& call : block.calls) {
      const auto refuse = [&](const std::string& why) {
        throw ConfigError(text("[step] block ", block.name, " calls ", call.text(0),
                               " inside its ", name_of(call.when), ", ", why));
      };
      const bool over_data = call.axes.meets(kDataAxes);
      if (over_data && schedule.exact)
        refuse(
            "so its results depend on the number of ranks; legal: a run without "
            "--exact, or a model without such calls");
      if (over_data && call.per_sample != 0)
        refuse(
            "of a size that follows the samples, of which ranks may have more or "
            "fewer; legal: one size for all");
      if (over_data && schedule.slices % ranks != 0)
        refuse(text("which all ranks make together; legal: slices=", ranks,
                    " or a multiple of it, not ", schedule.slices));
      if (schedule.mesh.size(call.axes) > 1 && schedule.group_along(call.axes) == kNone)
        refuse(
            "for which there is no group; legal: over all data-parallel ranks, or all "
            "tensor-parallel ones");
    }
}

// Without anybody to cut it for, state stays whole.
Schedule make_frame(std::span<const BlockSpec> blocks, const Layout& layout,
                    const GeneratorOptions& options) {
  const int shards = layout.dp / layout.replicate;
  const Mesh mesh = make_mesh(layout);
  Schedule schedule{.mesh = mesh,
                    .slices = options.slices,
                    .shard = options.offload_parameters          ? 3
                             : shards > 1 || options.meets_alone ? layout.shard
                                                                 : 0,
                    .exact = options.exact,
                    .elastic = options.elastic,
                    .runs_ahead = options.run_ahead,
                    .precision = options.precision,
                    .groups = make_groups(mesh, options.meets_alone)};
  if (layout.pp > 1 && !blocks.empty())
    schedule.stages = make_stages(blocks, layout.pp, options.pipeline);
  if (layout.pp == 1 && !blocks.empty())
    require_stages(static_cast<int>(blocks.size()), 1, options.pipeline);
  check_calls(blocks, schedule);
  schedule.keeps_sums = !options.shares_memory || layout.replicate > 1 ||
                        options.clip || options.tensor_sums || options.vote;
  schedule.buckets = make_buckets(
      blocks, {.limit_bytes = options.bucket_bytes,
               .one_a_block = schedule.shard == 3,
               .parts = schedule.shard > 0 ? mesh.size(Axis::kCut) : shards,
               .stages = schedule.stages});
  check_tied(schedule);
  add_tied_groups(schedule);
  schedule.channels = channels_for(schedule.groups);
  if (schedule.shard > 0) cut_state(schedule);
  if (schedule.elastic) add_mirrors(schedule);
  if (layout.pp > 1) add_links(schedule);
  const int64_t width = size_of(options.precision.compute);
  for (auto& bucket : schedule.buckets)
    bucket.joined = schedule.shard == 3 && options.join_alignment > 0 &&
                    bucket.numel / shards * width % options.join_alignment == 0;
  // A sum that waits for another one is kept until then.
  schedule.keeps_sums |= std::ranges::any_of(schedule.buckets, is_tied);
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
                .rounds = schedule.mesh.rounds(options.slices)};
  const auto lane_of = [&](std::string_view group) {
    const int number = group_number(schedule, group);
    return number == kNone ? kComputeLane : number + 1;
  };
  plan.copy_lane = static_cast<int>(schedule.groups.size()) + 1;
  plan.dp_lane = lane_of("dp");
  plan.all_lane = has_parts(schedule.mesh) ? lane_of("all") : plan.dp_lane;
  plan.replicate_lane = lane_of("replicate");
  plan.shard_lane =
      plan.replicate_lane != kComputeLane ? lane_of("shard") : plan.dp_lane;
  plan.gather_lane = plan.shard_lane;
  if (plan.gather_lane == kComputeLane && schedule.shard == 3)
    plan.gather_lane = plan.copy_lane;  // its group is one rank
  plan.first_link = plan.copy_lane + 1;
  for (const auto& bucket : schedule.buckets) {
    const auto places = places_of(schedule, bucket);
    plan.tied_lanes.push_back(kNone);
    for (size_t g = 0; places.size() > 1 && g < schedule.groups.size(); ++g)
      if (schedule.groups[g].places == places)
        plan.tied_lanes.back() = static_cast<int>(g) + 1;
  }
  return plan;
}

// So many reductions may be under way before a gradient waits for memory.
constexpr int kReductionsAtOnce = 2;

Offload offload_of(const GeneratorOptions& options) {
  if (options.offload_parameters) return Offload::kParameters;
  return options.offload ? Offload::kOptimizer : Offload::kNothing;
}

void plan_memory(Schedule& schedule, const GeneratorOptions& options) {
  assign_buffers(schedule, kReductionsAtOnce);
  plan_state(schedule, options.optimizer_states);
  if (options.memory == MemoryIn::kDevice) plan_device(schedule, offload_of(options));
}

}  // namespace

int64_t padded(int64_t numel) { return (numel + kChunk - 1) / kChunk * kChunk; }

std::vector<std::string> fields_of(const Chain& chain, const Role& role) {
  std::vector<std::string> fields;
  for (const auto& action : role.actions) {
    if (action.kind != ActionKind::kForward) continue;
    add_fields(chain.blocks.at(action.block)->fields(), fields);
    if (action.block + 1 == static_cast<int>(chain.blocks.size()))
      add_fields(chain.loss.fields, fields);
  }
  return fields;
}

std::vector<BlockSpec> specs_of(const Chain& chain) {
  std::vector<BlockSpec> specs;
  for (const auto& block : chain.blocks) {
    BlockSpec spec{.name = block->name()};
    for (const auto& [name, tensor] : block->parameters()) {
      spec.parameters.push_back(spec_of(name, tensor));
      spec.frozen.push_back(!tensor.requires_grad());
    }
    spec.keeps_statistics = !block->buffers().empty();
    spec.calls = block->calls();
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
  std::map<std::pair<int, int>, std::vector<int>> ranks;  // by place and slices
  for (int r = 0; r < schedule.world(); ++r)
    ranks[{schedule.mesh.coordinate(r, Axis::kPipe),
           schedule.mesh.slices(r, options.slices).count()}]
        .push_back(r);
  const StepPlan plan = make_step_plan(blocks, schedule, options);
  for (const auto& generator : kGenerators) {
    if (!generator.makes(schedule, options)) continue;
    std::vector<Role> roles;
    for (auto& [key, those] : ranks) {
      const auto [place, slices] = key;
      ListWriter list(plan, place, slices);
      generator.write(list);
      roles.push_back({.ranks = those, .slices = slices, .actions = list.take()});
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
