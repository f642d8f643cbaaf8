// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/engine/block_measure.h"
#include "cohort/step/layout.h"
#include "cohort/step/schedule.h"
#include "cohort/train/trainer_options.h"
#include "cohort/update_rule.h"

namespace cohort {

// The layout of a run in this world: a later one has as many ranks as there are.
// ConfigError if it is the first, and has another number.
Layout layout_for(Layout layout, const Communicator& comm);

// Whether blocks call all data-parallel ranks inside: each of them then has as many
// slices of a batch as another.
bool calls_all_data_ranks(const Chain& chain);

// So many, of as many asked for; 0: as the layout has.
int even_slices(int asked, const Layout& layout, int64_t batch);

// What a rank does, and how much of it at once.
struct PlannedStep {
  Schedule step;
  // Samples that a validation may look at in one piece: as many as fit into the memory
  // that the step leaves, its own activations' among it; at least 1, at most
  // kMostValidSamples. Ranks with other memory may find another number.
  int64_t valid_samples = 1;
};
inline constexpr int64_t kMostValidSamples = 500;

// The step, proved before anything is allocated for it. ConfigError if a rank has too
// little memory, with what would fit.
PlannedStep make_plan(const Chain& chain, std::span<const BlockMeasure> measures,
                      const WorldOptions& options, const UpdateRule& rule);

// The step of a batch on the ranks that the options say, without looking whether it
// fits into their memory.
Schedule generate_for(std::vector<BlockSpec> specs, const WorldOptions& options,
                      std::span<const BlockMeasure> measures, const UpdateRule& rule,
                      int64_t batch);

// What a step over so many samples computes, on all ranks together. 0 where blocks were
// measured and not counted.
struct StepFlops {
  double model = 0;  // a forward counts once, a backward twice
  double all = 0;    // a forward that is made again counts too
};
StepFlops flops_of(const Schedule& schedule, std::span<const BlockMeasure> measures,
                   double samples);

// Validation: each rank looks at its own part of the set. Cut into the stages of the
// step, whose parameters a rank has. `last`: a block that stands in the place of the
// chain's last one.
Schedule make_forward_schedule(const Chain& chain,
                               std::span<const BlockMeasure> measures,
                               const TrainerOptions& options,
                               const Block* last = nullptr);

}  // namespace cohort
