// SPDX-License-Identifier: Apache-2.0
#include "cli/step_probe.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace cohort::cli {
namespace {

// Hears of every tensor memory that this thread takes and gives back.
class AllocationMeter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  void restart() { peak_ = live_; }
  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

struct BlockProbe {
  double activation = 0, output = 0, scratch = 0;  // bytes
  double forward = 0, backward = 0;                // seconds
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double bytes_of(const Values& values) {
  double sum = 0;
  for (const auto& value : values) sum += static_cast<double>(value.nbytes());
  return sum;
}

// One slice, block by block, as the executor runs it.
class Probe {
 public:
  Probe(Chain& chain, const Batch& batch)
      : chain_(chain),
        batch_(batch),
        meter_(std::make_shared<AllocationMeter>()),
        result_(chain.blocks.size()) {}

  std::vector<BlockProbe> run() {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter_);
    for (size_t b = 0; b < chain_.blocks.size(); ++b) forward(b);
    Values upstream = {at::ones({})};
    for (size_t b = chain_.blocks.size(); b-- > 0;) upstream = backward(b, upstream);
    return result_;
  }

 private:
  void forward(size_t b) {
    Values inputs = {batch_.input};
    if (b > 0) {
      inputs = outputs_.back();
      for (auto& value : inputs) {
        value = value.detach();
        if (value.is_floating_point()) value.requires_grad_(true);
      }
    }
    const int64_t before = meter_->live();
    meter_->restart();
    Context context{.sample_ids = batch_.ids, .statistics = &statistics_};
    const Stopwatch watch;
    Values outputs = chain_.blocks[b]->forward(inputs, context);
    result_[b].output = bytes_of(outputs);
    if (b + 1 == chain_.blocks.size())
      outputs = {chain_.loss(outputs, batch_.target).sum};
    result_[b].forward = watch.seconds();
    result_[b].activation = static_cast<double>(meter_->live() - before);
    result_[b].scratch = static_cast<double>(meter_->peak() - meter_->live());
    inputs_.push_back(std::move(inputs));
    outputs_.push_back(std::move(outputs));
  }

  Values backward(size_t b, const Values& upstream) {
    Values wanted;
    double gradients = 0;
    for (const auto& [name, parameter] : chain_.blocks[b]->parameters())
      if (parameter.requires_grad()) {
        wanted.push_back(parameter);
        gradients += static_cast<double>(parameter.nbytes());
      }
    const size_t parameters = wanted.size();
    for (const auto& value : inputs_[b])
      if (value.requires_grad()) wanted.push_back(value);
    if (wanted.empty()) return {};
    const int64_t before = meter_->live();
    meter_->restart();
    const Stopwatch watch;
    Values found = torch::autograd::grad(outputs_[b], wanted, upstream, {}, false,
                                         /*allow_unused=*/true);
    result_[b].backward = watch.seconds();
    // Gradients of parameters are born where the schedule counts them already.
    const double most = static_cast<double>(meter_->peak() - before) - gradients;
    result_[b].scratch = std::max(result_[b].scratch, most);
    return Values(found.begin() + static_cast<int64_t>(parameters), found.end());
  }

  Chain& chain_;
  const Batch& batch_;
  std::shared_ptr<AllocationMeter> meter_;
  std::vector<Statistic> statistics_;
  std::vector<Values> inputs_, outputs_;
  std::vector<BlockProbe> result_;
};

std::vector<BlockProbe> probe(Chain& chain, const Dataset& data, int64_t samples) {
  std::vector<int64_t> ids(static_cast<size_t>(samples));
  std::iota(ids.begin(), ids.end(), 0);
  Batch batch = data.gather(ids);
  batch.ids = ids;
  Probe(chain, batch).run();  // the first one also warms up
  std::vector<BlockProbe> best = Probe(chain, batch).run();
  const std::vector<BlockProbe> again = Probe(chain, batch).run();
  for (size_t b = 0; b < best.size(); ++b) {
    best[b].forward = std::min(best[b].forward, again[b].forward);
    best[b].backward = std::min(best[b].backward, again[b].backward);
  }
  return best;
}

// The straight line through two points, never falling and never below zero.
ComputeCost line_through(double x1, double y1, double x2, double y2) {
  const double slope = x2 > x1 ? std::max(0.0, (y2 - y1) / (x2 - x1)) : 0;
  return {.fixed = std::max(0.0, y1 - slope * x1), .per_sample = slope};
}

}  // namespace

void probe_blocks(Chain& chain, const Dataset& data, int64_t samples,
                  std::vector<BlockSpec>& specs, CostTable& costs) {
  constexpr int64_t kSmall = 2, kLarge = 6;
  at::set_num_threads(1);
  const int64_t large = std::clamp(samples, kSmall, kLarge);
  const auto a = probe(chain, data, kSmall), b = probe(chain, data, large);
  const auto line = [&](double at_small, double at_large) {
    return line_through(static_cast<double>(kSmall), at_small,
                        static_cast<double>(large), at_large);
  };
  costs.blocks.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto bytes = [&](double BlockProbe::*field) {
      const ComputeCost cost = line(a[i].*field, b[i].*field);
      return static_cast<int64_t>(cost.seconds(static_cast<double>(samples)));
    };
    specs[i].activation_bytes = bytes(&BlockProbe::activation);
    specs[i].output_bytes =
        std::min(bytes(&BlockProbe::output), specs[i].activation_bytes);
    specs[i].scratch_bytes = bytes(&BlockProbe::scratch);
    const ComputeCost forward = line(a[i].forward, b[i].forward);
    costs.blocks[i] = {forward, line(a[i].backward, b[i].backward), forward};
  }
}

}  // namespace cohort::cli
