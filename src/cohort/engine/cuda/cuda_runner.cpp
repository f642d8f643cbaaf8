// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_runner.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/engine/checked_calls.h"
#include "cohort/engine/cuda/cuda_step.h"
#include "cohort/engine/timed.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

bool has(const Schedule& schedule, ActionKind kind) {
  return std::any_of(
      schedule.roles.begin(), schedule.roles.end(), [=](const Role& role) {
        return std::any_of(role.actions.begin(), role.actions.end(),
                           [=](const Action& action) { return action.kind == kind; });
      });
}

CudaStepOptions step_options(const Schedule& schedule, const UpdateOptions& update,
                             const ExecutorOptions& options) {
  CudaStepOptions step;
  step.update = update;
  step.decay = options.decay;
  step.compute = schedule.precision.compute;
  step.clip = options.clip;
  step.seed = options.seed;
  step.loss_scale = options.loss_scale;
  step.slices = schedule.slices;
  step.recompute = recomputed_blocks(schedule.role_of(0), schedule.blocks.size());
  step.capture = options.capture;
  step.on_host = options.compute_on == ComputeOn::kStaged;
  step.gpu = options.gpu;
  return step;
}

class CudaRunner final : public StepRunner {
 public:
  CudaRunner(Chain& chain, const Schedule& schedule, const UpdateOptions& update,
             const ExecutorOptions& options)
      : slices_(schedule.slices),
        may_skip_(has(schedule, ActionKind::kVote)),
        lists_(options.listed_samples > 0),
        step_(chain, step_options(schedule, update, options)) {}

  StepResult run(const StepInput& input) override {
    StepResult result;
    if (lists_) result.samples.resize(1);
    {
      Timed timed(result.split.data);
      for (int slice = 0; slice < slices_; ++slice) load(input, slice, result);
    }
    require_expected(input, result.drawn);  // before the device changes anything
    // The device does forward and backward as one; the host sees only their end.
    Timed timed(result.split.forward);
    step_.start(input.step, input.rate);
    const CudaStep::Result made = step_.result();
    if (made.skipped && !may_skip_) stop(input.step);
    result.loss = made.loss;
    result.count = made.count;
    result.stop = input.stop;
    result.skipped = made.skipped;
    result.norm = made.norm;
    return result;
  }

  WeightedLoss evaluate(const Schedule&, const Batch& batch) override {
    if (batch.count == 0)
      return {.sum = at::zeros({}, at::kDouble), .count = 0, .correct = 0};
    return step_.evaluate(batch);
  }

  uint64_t weights_hash() override {
    uint64_t sum = 0;
    for (const auto& piece : step_.state()) {
      if (piece.tensor.kind == TensorKind::kMoment) continue;
      sum += hash_term(piece.tensor.spec) + hash_elements(piece);
    }
    return sum;
  }
  ReplicaReport compare_replicas() override { return {}; }  // there are none
  std::vector<StatePiece> state(Holding) override { return step_.state(); }
  void refresh() override { step_.refresh(); }
  std::string small_state() override { return step_.small_state(); }
  void set_small_state(const std::string& text) override {
    step_.set_small_state(text);
  }
  int64_t device_peak_bytes() const override { return step_.peak_bytes(); }

 private:
  void load(const StepInput& input, int slice, StepResult& result) {
    const Batch batch = input.batch(slice);
    step_.load(input.step, batch, slice);
    result.drawn += sum_samples(input.sample_key, batch.ids);
    if (!lists_) return;
    auto& mine = result.samples.front();
    mine.insert(mine.end(), batch.ids.begin(), batch.ids.end());
  }

  [[noreturn]] void stop(int64_t step) {
    throw Error(ErrorKind::kBug, text("[engine] step ", step + 1, ": the gradient of ",
                                      step_.bad_gradient(), " on rank 0 is not finite",
                                      kNotFiniteAdvice));
  }

  int slices_;
  bool may_skip_;
  bool lists_;  // the ids that are drawn
  CudaStep step_;
};

}  // namespace

bool is_whole_step(const Schedule& schedule, const ExecutorOptions& options) {
  return options.compute_on != ComputeOn::kHost && schedule.world() == 1 &&
         !schedule.exact && !has(schedule, ActionKind::kOffload) &&
         !has(schedule, ActionKind::kGather);
}

std::unique_ptr<StepRunner> make_cuda_runner(Chain& chain, const Schedule& schedule,
                                             const UpdateOptions& update,
                                             const ExecutorOptions& options) {
  require_no_calls(schedule);
  return std::make_unique<CudaRunner>(chain, schedule, update, options);
}

}  // namespace cohort
