// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_timing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "cohort/engine/block_runner.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

constexpr double kLong = 0.05;  // seconds of two samples, from which four tell no more
constexpr double kNever = std::numeric_limits<double>::infinity();

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

struct BlockTime {
  double forward = kNever, backward = kNever;
};

// Values as the block before would give them; not all alike, for norms.
Values made_values(const BlockCount& count, int64_t samples) {
  Values values;
  for (const auto& form : count.outputs) {
    const auto shape = form.shape(samples);
    Tensor value = at::zeros(shape, form.dtype);
    if (value.is_floating_point())
      value.copy_(at::linspace(-1, 1, value.numel()).view(shape));
    values.push_back(value.contiguous(form.format));
  }
  return values;
}

// One block between borders, as in a stage of a pipeline.
class LoneBlock final : private Surroundings {
 public:
  LoneBlock(const Chain& chain, int block, std::span<const BlockCount> counts)
      : chain_(chain),
        block_(block),
        counts_(counts),
        parameters_(chain.parameters()),
        homes_(parameters_.size()),
        calls_(chain, {.stand_in = 2}),
        blocks_(chain, *this, {.calls = &calls_}) {}

  BlockTime time(const Batch& batch) {
    batch_ = batch;
    batch_.ids.clear();
    for (int64_t i = 0; i < batch.count; ++i) batch_.ids.push_back(i);
    BlockTime least;
    for (int pass = 0; pass < 2; ++pass) run(least);
    return least;
  }

 private:
  const Batch& batch(int) override { return batch_; }
  void keep_loss(int, const WeightedLoss&) override {}
  Tensor seed() override { return at::ones({}); }

  // Others' parameters have no memory, and so no gradient.
  GradTarget home(const Addend& to) override {
    Tensor& home = homes_[to.place];
    if (!home.defined()) home = at::zeros_like(parameters_[to.place].tensor).detach();
    return {home};
  }

  void run(BlockTime& least) {
    blocks_.begin(0, Phase::kTrain);
    if (block_ > 0)
      blocks_.output(block_ - 1, 0) = made_values(counts_[block_ - 1], batch_.count);
    const double forward =
        seconds_of([&] { blocks_.forward(block_, 0, /*keeps_graph=*/true); });
    Values gradient;
    for (const auto& value : blocks_.output(block_, 0))
      gradient.push_back(value.is_floating_point() ? at::full_like(value, 1e-3).detach()
                                                   : Tensor());
    blocks_.gradient(block_, 0) = std::move(gradient);
    const double backward = seconds_of([&] { blocks_.backward(block_, 0); });
    blocks_.clear();
    least = {std::min(least.forward, forward), std::min(least.backward, backward)};
  }

  const Chain& chain_;
  int block_;
  std::span<const BlockCount> counts_;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> homes_;  // where gradients are written, by place
  Batch batch_;
  CheckedCalls calls_;  // a dry run: nobody is called
  BlockRunner blocks_;
};

// Through the times of 2 and of 4 samples.
ComputeCost cost_through(double two, double four) {
  const double slope = std::max(0.0, (four - two) / 2);
  return {std::max(0.0, two - 2 * slope), slope};
}

}  // namespace

BlockCost time_block(const Chain& chain, int block, std::span<const BlockCount> counts,
                     const std::function<Batch(int64_t)>& batch) {
  give_first_values(*chain.blocks[block]);
  LoneBlock alone(chain, block, counts);
  // Two and four, as blocks are counted: some have no use for a batch of one.
  const BlockTime two = alone.time(batch(2));
  ComputeCost forward{.per_sample = two.forward / 2};
  ComputeCost backward{.per_sample = two.backward / 2};
  if (two.forward + two.backward < kLong) {
    const BlockTime four = alone.time(batch(4));
    forward = cost_through(two.forward, four.forward);
    backward = cost_through(two.backward, four.backward);
  }
  return {.forward = forward, .backward = backward, .recompute = forward};
}

BlockCost cost_of_flops(const BlockMeasure& needs, double flops_per_second) {
  const double bytes_per_second = MachineGuess{}.memory_bytes;
  const auto seconds = [&](double flops, double bytes) {
    return std::max(0.0, flops) / flops_per_second +
           std::max(0.0, bytes) / bytes_per_second;
  };
  const ComputeCost forward{
      seconds(needs.flops.fixed, needs.activation_bytes.fixed),
      seconds(needs.flops.per_sample, needs.activation_bytes.per_sample)};
  return {.forward = forward,
          .backward = {2 * forward.fixed, 2 * forward.per_sample},
          .recompute = forward};
}

double product_rate() {
  constexpr int64_t kSide = 1024;
  constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  const Tensor left = at::full({kSide, kSide}, 0.5), right = at::full_like(left, 0.5);
  Tensor out = at::empty_like(left);
  double least = kNever;
  for (int i = 0; i < 3; ++i)
    least = std::min(least, seconds_of([&] { at::mm_out(out, left, right); }));
  return kFlops / least;
}

}  // namespace cohort
