// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"
#include "cohort/engine/block_runner.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Sample {
  double activation = 0, output = 0, scratch = 0, deferred = 0;
  double forward_s = 0, backward_s = 0;
};

double seconds_from(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// One pass over the chain; the counter follows every tensor.
class Pass final : private Surroundings {
 public:
  // `homes`: where gradients are written, by place: no counter sees them, as in a run.
  Pass(const Chain& chain, const Batch& batch, std::span<const Tensor> homes)
      : chain_(chain),
        batch_(batch),
        homes_(homes),
        samples_(chain.blocks.size()),
        calls_(chain, {.stand_in = 2}),
        blocks_(chain, *this, {.calls = &calls_}) {
    batch_.ids.clear();
    for (int64_t i = 0; i < batch.count; ++i) batch_.ids.push_back(i);
  }

  // `in_parts`: no gradient of weights before all of inputs are there, which tells what
  // is kept between.
  std::vector<Sample> run(bool in_parts) {
    const TensorMemoryScope scope(counter_);
    const int64_t before = counter_.current();
    const int last = static_cast<int>(samples_.size()) - 1;
    blocks_.begin(0, Phase::kTrain);
    for (int b = 0; b <= last; ++b) forward(b);
    for (int b = last; b >= 0; --b) in_parts ? backward_input(b) : backward(b);
    for (int b = last; b >= 0 && in_parts; --b) backward_weight(b);
    blocks_.begin(0, Phase::kTrain);  // drops what forwards learned
    blocks_.clear();
    COHORT_CHECK(counter_.current() - before < (1 << 20), "a pass left memory behind");
    for (size_t b = 0; b < samples_.size(); ++b)
      for (const auto& field : batch_.tensors(chain_.blocks[b]->fields()))
        samples_[b].activation += static_cast<double>(field.nbytes());
    return samples_;
  }

 private:
  const Batch& batch(int) override { return batch_; }
  void keep_loss(int, const WeightedLoss&) override {}
  Tensor seed() override { return at::ones({}); }
  GradTarget home(const Addend& to) override { return {homes_[to.place]}; }

  void forward(int block) {
    Sample& sample = samples_[block];
    const int64_t before = start();
    const auto begin = SteadyClock::now();
    blocks_.forward(block, 0, /*keeps_graph=*/true);
    sample.forward_s = seconds_from(begin);
    for (const auto& value : blocks_.output(block, 0))
      sample.output += static_cast<double>(value.nbytes());
    sample.activation = static_cast<double>(counter_.current() - before);
    sample.scratch = static_cast<double>(counter_.peak() - counter_.current());
  }

  void backward(int block) {
    int64_t before = start();
    for (const auto& value : blocks_.gradient(block, 0))
      if (value.defined()) before -= static_cast<int64_t>(value.nbytes());
    const auto begin = SteadyClock::now();
    blocks_.backward(block, 0);
    samples_[block].backward_s = seconds_from(begin);
    samples_[block].scratch = std::max(samples_[block].scratch,
                                       static_cast<double>(counter_.peak() - before));
  }

  void backward_input(int block) {
    const auto begin = SteadyClock::now();
    blocks_.backward_input(block, 0);
    samples_[block].backward_s = seconds_from(begin);
  }

  void backward_weight(int block) {
    const int64_t before = counter_.current();
    const auto begin = SteadyClock::now();
    blocks_.backward_weight(block, 0);
    samples_[block].backward_s += seconds_from(begin);
    samples_[block].deferred = static_cast<double>(before - counter_.current());
  }

  int64_t start() {
    counter_.reset_peak();
    return counter_.current();
  }

  const Chain& chain_;
  Batch batch_;
  std::span<const Tensor> homes_;
  std::vector<Sample> samples_;
  CheckedCalls calls_;  // a dry run: nobody is called
  BlockRunner blocks_;
  MemoryCounter counter_;
};

// Memory of the second of two passes: the first warms up, and takes backwards in their
// parts. The shorter of both times.
std::vector<Sample> measure(const Chain& chain, const Batch& batch,
                            std::span<const Tensor> homes) {
  const auto first = Pass(chain, batch, homes).run(/*in_parts=*/true);
  auto second = Pass(chain, batch, homes).run(/*in_parts=*/false);
  for (size_t b = 0; b < first.size(); ++b) {
    second[b].forward_s = std::min(first[b].forward_s, second[b].forward_s);
    second[b].backward_s = std::min(first[b].backward_s, second[b].backward_s);
    second[b].deferred = first[b].deferred;
  }
  return second;
}

Line line(double x1, double y1, double x2, double y2) {
  const double slope = std::max(0.0, (y2 - y1) / (x2 - x1));
  return {std::max(0.0, y1 - slope * x1), slope};
}

}  // namespace

std::vector<BlockMeasure> measure_blocks(const Chain& chain,
                                         const std::function<Batch(int64_t)>& batch,
                                         int64_t samples) {
  COHORT_CHECK(samples > 0, "measured with no sample");
  give_first_values(chain);
  std::vector<Tensor> homes;
  for (const auto& parameter : chain.parameters())
    homes.push_back(at::zeros_like(parameter.tensor).detach());
  const auto few = measure(chain, batch(samples), homes);
  const auto more = measure(chain, batch(2 * samples), homes);
  std::vector<BlockMeasure> measures;
  for (size_t b = 0; b < few.size(); ++b) {
    const auto through = [&](double Sample::*what) {
      return line(static_cast<double>(samples), few[b].*what,
                  static_cast<double>(2 * samples), more[b].*what);
    };
    const Line forward = through(&Sample::forward_s);
    const Line backward = through(&Sample::backward_s);
    const ComputeCost ahead{forward.fixed, forward.per_sample};
    measures.push_back({.activation_bytes = through(&Sample::activation),
                        .output_bytes = through(&Sample::output),
                        .scratch_bytes = through(&Sample::scratch),
                        .deferred_bytes = through(&Sample::deferred),
                        .seconds = {.forward = ahead,
                                    .backward = {backward.fixed, backward.per_sample},
                                    .recompute = ahead}});
  }
  return measures;
}

Batch some_samples(const Chain& chain, const Dataset& data, int64_t count) {
  const auto fields = chain.fields();
  require_fields(data, fields);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(i % data.size());
  return data.gather(ids, fields);
}

std::vector<BlockMeasure> measure_blocks(const Chain& chain, const Dataset& data) {
  constexpr int64_t kFew = 2;
  const auto batch = [&](int64_t samples) {
    return some_samples(chain, data, samples);
  };
  return measure_blocks(chain, batch, kFew);
}

void set_bytes(std::span<const BlockMeasure> measures, double samples,
               at::ScalarType compute, std::span<BlockSpec> specs) {
  COHORT_CHECK(measures.size() == specs.size(), "one measure per block");
  const double width = static_cast<double>(c10::elementSize(compute)) / sizeof(float);
  const auto bytes = [&](const Line& of) {
    return static_cast<int64_t>(std::llround(width * of.at(samples)));
  };
  for (size_t b = 0; b < specs.size(); ++b) {
    specs[b].activation_bytes = bytes(measures[b].activation_bytes);
    specs[b].output_bytes = bytes(measures[b].output_bytes);
    specs[b].scratch_bytes = bytes(measures[b].scratch_bytes);
    specs[b].deferred_bytes = bytes(measures[b].deferred_bytes);
    specs[b].cost = measures[b].flops.at(samples);
    for (auto& call : specs[b].calls) {
      call.numel = call.numel_for(std::llround(samples));
      call.per_sample = 0;
    }
  }
}

}  // namespace cohort
