// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/step_in_flight.h"

namespace cohort {

// Blocks compute in the memory of the state, when their turn comes.
class HostCompute final : public ComputeSide, private Surroundings {
 public:
  HostCompute(const Chain& chain, const FlatState& state, GradientSums& gradients,
              const Schedule& schedule, const Role& role, int first_slice,
              uint64_t seed, CheckedCalls& calls, StepInFlight& step);

  void begin_step(const StepInput& input, double seed_scale) override;
  void compute(const Action& action) override;
  double evaluate(const StepInput& input, const std::function<void()>& run) override;
  void abandon() override;
  std::vector<Statistic> statistics() override { return blocks_.statistics(); }
  void apply(std::span<const Statistic> statistics) override;
  BlockRunner& blocks() override { return blocks_; }
  int64_t rows(int slice) override { return batch(slice).count; }

 private:
  const Batch& batch(int slice) override;
  void keep_loss(int slice, const WeightedLoss& loss) override;
  Tensor seed() override;
  GradTarget home(int place, int slice) override;
  void open(int place, int slice) override;
  void close(int place, int slice) override;

  void backward(const Action& action);

  const FlatState& state_;
  GradientSums& gradients_;
  StepInFlight& step_;
  at::ScalarType compute_;
  int first_slice_;
  std::set<std::pair<int, int>> recomputed_;  // blocks and slices
  std::vector<int> last_to_add_;              // by bucket: block
  std::vector<std::string> block_fields_;     // computed with in that dtype
  bool draws_;                                // of the ranks with a slice one does
  BlockRunner blocks_;

  const StepInput* input_ = nullptr;
  bool evaluates_ = false;
  double seed_scale_ = 1, correct_ = 0;
  std::map<int, Batch> batches_;  // by slice; fields while it is under way
};

}  // namespace cohort
