// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cohort/engine/block_runner.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/step_batches.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_runner.h"
#include "cohort/step/gradient_target.h"

namespace cohort {

// Blocks compute in the memory of the state, when their turn comes: of the host, or of
// a device that has the state.
class ComputeSide final : private Surroundings {
 public:
  // What an evaluation adds up beside the loss.
  struct Answers {
    double correct = 0;
    std::vector<double> named = {};  // by Metrics::named
  };

  // Borrows all it is given but the batches.
  ComputeSide(const Chain& chain, const FlatState& state, GradientSums& gradients,
              const Schedule& schedule, const Role& role,
              const BlockRunner::Options& options, std::unique_ptr<StepBatches> batches,
              StepInFlight& step);

  // `seed`: the gradient of the loss, a scalar where blocks compute.
  void begin_step(const StepInput& input, const Tensor& seed);
  // A Forward, Recompute or Backward, or a part of one.
  void compute(const Action& action);
  // Forwards of one batch that change nothing, in `run`. Returns right answers. `last`:
  // as of BlockRunner::begin().
  Answers evaluate(const StepInput& input, Block* last,
                   const std::function<void()>& run);
  // Drops all that is under way.
  void abandon();

  // What all slices of this rank learned.
  std::vector<Statistic> statistics() { return blocks_.statistics(); }

  // Values that cross the borders of a stage; and samples of a slice.
  BlockRunner& blocks() { return blocks_; }
  int64_t rows(int slice) { return batch(slice).count; }

 private:
  const Batch& batch(int slice) override { return batches_->at(slice); }
  DeviceRandom* random(int slice) override { return batches_->random(slice); }
  void keep_loss(int slice, const WeightedLoss& loss) override;
  Tensor seed() override { return seed_; }
  GradTarget home(const Addend& to) override;
  void open(const Addend& to) override;
  void close(const Addend& to) override;
  int use_of(const Addend& to) const;

  void backward(const Action& action);

  const FlatState& state_;
  GradientSums& gradients_;
  StepInFlight& step_;
  std::set<std::pair<int, int>> recomputed_;  // blocks and slices
  std::vector<int> last_to_add_;              // by bucket: block of this place
  std::unique_ptr<StepBatches> batches_;
  BlockRunner blocks_;

  Tensor seed_;
  bool evaluates_ = false;
  Answers answers_;
};

// Along a pipeline all have the same samples; they count where they come in.
bool has_first_block(const Role& role);

}  // namespace cohort
