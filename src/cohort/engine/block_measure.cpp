// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_measure.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Gradients are written where no counter sees them, as they are in a run.
class ScratchSink final : public GradSink {
 public:
  void add(const Tensor& parameter) {
    targets_.emplace(parameter.unsafeGetTensorImpl(),
                     at::zeros_like(parameter).detach());
  }
  GradTarget take(const Tensor& parameter) override {
    const auto it = targets_.find(parameter.unsafeGetTensorImpl());
    return it == targets_.end() ? GradTarget{} : GradTarget{it->second, false};
  }

 private:
  std::unordered_map<const void*, Tensor> targets_;
};

struct Sample {
  double activation = 0, output = 0, scratch = 0;
  double forward_s = 0, backward_s = 0;
};

double seconds_from(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// One pass over the chain; the counter follows every tensor.
class Pass {
 public:
  Pass(const Chain& chain, const Batch& batch, ScratchSink& sink)
      : chain_(chain), batch_(batch), sink_(sink), samples_(chain.blocks.size()) {
    for (int64_t i = 0; i < batch.input.size(0); ++i) ids_.push_back(i);
  }

  std::vector<Sample> run() {
    const TensorMemoryScope scope(counter_);
    const int64_t before = counter_.current();
    forward();
    backward();
    COHORT_CHECK(counter_.current() - before < (1 << 20), "a pass left memory behind");
    samples_[0].activation += static_cast<double>(batch_.input.nbytes());
    return samples_;
  }

 private:
  struct Flight {
    Values inputs, outputs;
  };

  void forward() {
    const c10::AutoGradMode grad(true);
    Values values{batch_.input};
    bool trained = false;
    for (size_t b = 0; b < chain_.blocks.size(); ++b) {
      Flight flight{.inputs = cut_graph(values, trained), .outputs = {}};
      values.clear();
      for (const auto& parameter : chain_.blocks[b]->parameters())
        trained |= parameter.tensor.requires_grad();
      const int64_t before = start();
      const auto begin = SteadyClock::now();
      std::vector<Statistic> statistics;
      Context context{.sample_ids = ids_, .grads = &sink_, .statistics = &statistics};
      flight.outputs = chain_.blocks[b]->forward(flight.inputs, context);
      if (b + 1 == chain_.blocks.size())
        flight.outputs = {chain_.loss(flight.outputs, batch_.target).sum};
      samples_[b].forward_s = seconds_from(begin);
      for (const auto& value : flight.outputs)
        samples_[b].output += static_cast<double>(value.nbytes());
      samples_[b].activation = static_cast<double>(counter_.current() - before);
      samples_[b].scratch = static_cast<double>(counter_.peak() - counter_.current());
      values = flight.outputs;
      flights_.push_back(std::move(flight));
    }
  }

  void backward() {
    Values upstream;
    for (int b = static_cast<int>(flights_.size()) - 1; b >= 0; --b) {
      Flight flight = std::move(flights_[b]);
      Values wanted;
      for (const auto& parameter : chain_.blocks[b]->parameters())
        if (parameter.tensor.requires_grad()) wanted.push_back(parameter.tensor);
      const size_t parameters = wanted.size();
      for (const auto& value : flight.inputs)
        if (value.requires_grad()) wanted.push_back(value);
      int64_t before = start();
      for (const auto& value : upstream) before -= static_cast<int64_t>(value.nbytes());
      const auto begin = SteadyClock::now();
      if (!wanted.empty()) {
        Values given = std::exchange(upstream, {});
        Values gradients =
            torch::autograd::grad(flight.outputs, wanted, given, {}, false,
                                  /*allow_unused=*/true);
        upstream.assign(gradients.begin() + static_cast<int64_t>(parameters),
                        gradients.end());
      }
      samples_[b].backward_s = seconds_from(begin);
      samples_[b].scratch =
          std::max(samples_[b].scratch, static_cast<double>(counter_.peak() - before));
    }
  }

  int64_t start() {
    counter_.reset_peak();
    return counter_.current();
  }

  const Chain& chain_;
  const Batch& batch_;
  ScratchSink& sink_;
  std::vector<int64_t> ids_;
  std::vector<Sample> samples_;
  std::vector<Flight> flights_;
  MemoryCounter counter_;
};

// The second of two: the first one warms up what is made once. Of times, the shorter.
std::vector<Sample> measure(const Chain& chain, const Batch& batch, ScratchSink& sink) {
  const auto first = Pass(chain, batch, sink).run();
  auto second = Pass(chain, batch, sink).run();
  for (size_t b = 0; b < first.size(); ++b) {
    second[b].forward_s = std::min(first[b].forward_s, second[b].forward_s);
    second[b].backward_s = std::min(first[b].backward_s, second[b].backward_s);
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
  ScratchSink sink;
  for (const auto& parameter : chain.parameters()) sink.add(parameter.tensor);
  const auto few = measure(chain, batch(samples), sink);
  const auto more = measure(chain, batch(2 * samples), sink);
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
                        .seconds = {.forward = ahead,
                                    .backward = {backward.fixed, backward.per_sample},
                                    .recompute = ahead}});
  }
  return measures;
}

std::vector<BlockMeasure> measure_blocks(const Chain& chain, const Dataset& data) {
  constexpr int64_t kFew = 2;
  const auto batch = [&](int64_t samples) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < samples; ++i) ids.push_back(i % data.size());
    return data.gather(ids);
  };
  return measure_blocks(chain, batch, kFew);
}

void set_bytes(std::span<const BlockMeasure> measures, double samples,
               at::ScalarType compute, std::span<BlockSpec> specs) {
  COHORT_CHECK(measures.size() == specs.size(), "one measure a block");
  const double width = static_cast<double>(c10::elementSize(compute)) / sizeof(float);
  const auto bytes = [&](const Line& of) {
    return static_cast<int64_t>(std::llround(width * of.at(samples)));
  };
  for (size_t b = 0; b < specs.size(); ++b) {
    specs[b].activation_bytes = bytes(measures[b].activation_bytes);
    specs[b].output_bytes = bytes(measures[b].output_bytes);
    specs[b].scratch_bytes = bytes(measures[b].scratch_bytes);
  }
}

}  // namespace cohort
