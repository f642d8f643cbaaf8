// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/step_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/train/memory_limit.h"

namespace cohort {
namespace {

// Samples of the largest slice.
double slice_samples(const TrainerOptions& options, int64_t batch) {
  return static_cast<double>((batch + options.slices - 1) / options.slices);
}

// The memory of the rank that needs most.
RolePeak memory_of(const Schedule& schedule, const TrainerOptions& options) {
  return check(schedule, {.elastic = options.elastic}).largest();
}

PlacedMemory placed(const RolePeak& peak) {
  return {.host = peak.on_host(), .gpu = peak.on_device};
}

// Whatever it is, the limit a user gives is for each kind of memory.
PlacedMemory limit_of(const TrainerOptions& options) {
  const int64_t given = options.memory_limit;
  return given > 0 ? PlacedMemory{given, given}
                   : available_to_rank(options.ranks_here, options.execute);
}

// Beside all that is kept while no step runs, where activations lie.
int64_t room_for_activations(const RolePeak& peak, const PlacedMemory& limit) {
  const int64_t own = peak.parts.activations + peak.parts.scratch;
  const bool on_device = peak.on_device > 0;
  const int64_t kept = (on_device ? peak.on_device : peak.on_host()) - own;
  return std::max(own, (on_device ? limit.gpu : limit.host) - kept);
}

// A forward that keeps no graph has a block's input, and what the block makes of it.
double forward_bytes(std::span<const BlockMeasure> measures, double samples) {
  double most = 0, input = 0;
  for (const auto& block : measures) {
    most = std::max(most, input + block.activation_bytes.at(samples) +
                              block.scratch_bytes.at(samples));
    input = block.output_bytes.at(samples);
  }
  return most;
}

int64_t valid_samples(std::span<const BlockMeasure> measures,
                      const TrainerOptions& options, int64_t room) {
  const auto compute = options.step.precision.compute;
  const double width = static_cast<double>(c10::elementSize(compute)) / sizeof(float);
  int64_t samples = kMostValidSamples;
  while (samples > 1 && width * forward_bytes(measures, static_cast<double>(samples)) >
                            static_cast<double>(room))
    --samples;
  return samples;
}

// The largest batch whose step fits, 0 if none does.
int64_t largest_batch(const std::vector<BlockSpec>& specs, const WorldOptions& options,
                      std::span<const BlockMeasure> measures, const UpdateRule& rule,
                      const PlacedMemory& limit) {
  const auto fit = [&](int64_t batch) {
    const Schedule schedule = generate_for(specs, options, measures, rule, batch);
    return placed(memory_of(schedule, options)).fits(limit);
  };
  if (fit(options.batch)) return options.batch;
  int64_t fits = 0, too_large = options.batch / options.slices;
  while (fits + 1 < too_large) {
    const int64_t middle = (fits + too_large) / 2;
    (fit(middle * options.slices) ? fits : too_large) = middle;
  }
  return fits * options.slices;
}

std::string what_fits(const std::vector<BlockSpec>& specs, WorldOptions options,
                      std::span<const BlockMeasure> measures, const UpdateRule& rule,
                      const PlacedMemory& limit) {
  const int64_t fits = largest_batch(specs, options, measures, rule, limit);
  const bool may_recompute = !options.step.recompute.is_all();
  options.step.recompute = true;
  const int64_t again =
      may_recompute ? largest_batch(specs, options, measures, rule, limit) : 0;
  std::string out = fits > 0 ? text("batch=", fits) : "";
  if (again > fits)
    out +=
        text(out.empty() ? "" : ", or ", "batch=", again, " with step.recompute=all");
  return out.empty() ? "no batch with this layout" : out;
}

}  // namespace

Schedule generate_for(std::vector<BlockSpec> specs, const WorldOptions& options,
                      std::span<const BlockMeasure> measures, const UpdateRule& rule,
                      int64_t batch) {
  GeneratorOptions step = options.step;
  step.slices = options.slices;
  step.tensor_sums = rule.reductions() > 0;
  step.optimizer_states = static_cast<int>(rule.states().size());
  step.memory = memory_for(options.execute);
  const bool reaches = step.memory != MemoryIn::kDevice;  // into peers' memory
  step.shares_memory = options.shares_memory && reaches;
  step.join_alignment = reaches ? options.join_alignment : 0;
  set_bytes(measures, slice_samples(options, batch), step.precision.compute, specs);
  return generate(specs, options.layout, step);
}

Layout layout_for(Layout layout, const Communicator& comm) {
  if (layout.world() == comm.size()) return layout;
  if (comm.generation() == 0 || comm.size() % layout.of_a_replica() != 0)
    throw ConfigError(text("[train] layout ", layout.text(), " is for ", layout.world(),
                           " ranks; the world has ", comm.size()));
  return fitted(layout, comm.size());
}

bool calls_all_data_ranks(const Chain& chain) {
  return std::ranges::any_of(chain.blocks, [](const auto& block) {
    return std::ranges::any_of(block->calls(), [](const BlockCall& call) {
      return call.axes.meets(kDataAxes);
    });
  });
}

int even_slices(int asked, const Layout& layout, int64_t batch) {
  const int dp = layout.dp;
  // Down, where it can be: a world that has lost a rank must not ask for more slices
  // than there are samples.
  const int slices = slices_for(asked, layout, batch);
  const int even = std::max(1, slices / dp) * dp;
  require_slices(batch, even);
  return even;
}

PlannedStep make_plan(const Chain& chain, std::span<const BlockMeasure> measures,
                      const WorldOptions& options, const UpdateRule& rule) {
  const auto specs = specs_of(chain);
  Schedule schedule = generate_for(specs, options, measures, rule, options.batch);
  const PlacedMemory limit = limit_of(options);
  const RolePeak peak = memory_of(schedule, options);
  const PlacedMemory need = placed(peak);
  if (need.fits(limit))
    return {.step = std::move(schedule),
            .valid_samples =
                valid_samples(measures, options, room_for_activations(peak, limit))};
  throw ConfigError(text(
      "[train] a rank would need ", need.text(), " (",
      format_bytes(static_cast<double>(peak.parts.activations)), " of activations",
      options.counted.empty() ? ", " : " (counted, an estimate), ",
      format_bytes(static_cast<double>(peak.parts.state)), " of state); it may have ",
      (need.gpu > 0 ? limit : PlacedMemory{.host = limit.host}).text(), "; would fit: ",
      what_fits(specs, options, measures, rule, limit), "; more slices or ",
      options.layout.dp > 1 ? "a higher shard level" : "more ranks and shard=3",
      " need less"));
}

StepFlops flops_of(const Schedule& schedule, std::span<const BlockMeasure> measures,
                   double samples) {
  std::set<int> again;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      if (action.kind == ActionKind::kRecompute) again.insert(action.block);
  StepFlops flops;
  for (int b = 0; b < static_cast<int>(measures.size()); ++b) {
    const double forward =
        schedule.slices * measures[b].flops.at(samples / schedule.slices);
    flops.model += 3 * forward;
    flops.all += (again.contains(b) ? 4 : 3) * forward;
  }
  return flops;
}

Schedule make_forward_schedule(const Chain& chain,
                               std::span<const BlockMeasure> measures,
                               const TrainerOptions& options, const Block* last) {
  auto specs = specs_of(chain);
  if (last) specs.back().calls = last->calls();
  for (size_t b = 0; b < specs.size(); ++b)
    specs[b].cost = measures[b].flops.at(slice_samples(options, options.batch));
  return generate(specs, options.layout,
                  {.slices = options.layout.dp,
                   .pipeline = options.step.pipeline,
                   .bucket_bytes = options.step.bucket_bytes,
                   .prefetch = options.step.prefetch,
                   .offload_parameters = options.step.offload_parameters,
                   .forward_only = true,
                   .precision = options.step.precision});
}

}  // namespace cohort
