// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_count.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/block_runner.h"
#include "cohort/engine/meta_device.h"
#include "cohort/step/chain_specs.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// Products that are added up for each element of an output. Only of operations that the
// others end in, so that each product is seen once.
int64_t terms_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto tensor = [&](size_t at) { return call.inputs()[at].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") return tensor(0).size(-1);
  if (name == "aten::addmm" || name == "aten::baddbmm") return tensor(1).size(-1);
  // An output is a sum over tokens of values times weights, which are sums as well.
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu")
    return 2 * tensor(1).size(2);
  if (name != "aten::convolution_overrideable") return 0;
  return tensor(1).numel() / tensor(1).size(0);
}

// Adds up what the operations of this thread compute. LibTorch calls back without a
// word on whose behalf: a profiler's state is where it keeps that.
class FlopCounter {
 public:
  FlopCounter()
      : sum_(std::make_shared<Sum>()),
        state_(kState, sum_),
        callback_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}))) {}
  ~FlopCounter() { at::removeCallback(callback_); }
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  double flops() const { return sum_->flops; }

 private:
  static constexpr auto kState = c10::DebugInfoKind::PROFILER_STATE;
  struct Sum final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
    bool memoryProfilingEnabled() const override { return false; }
    double flops = 0;
  };

  struct Terms final : at::ObserverContext {
    explicit Terms(int64_t given) : terms(given) {}
    int64_t terms;
  };

  // Inputs are gone at the end, outputs are there only then.
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    const int64_t terms = terms_of(call);
    return terms > 0 ? std::make_unique<Terms>(terms) : nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext* begun) {
    auto* const sum = static_cast<Sum*>(c10::ThreadLocalDebugInfo::get(kState));
    if (!sum || !begun || call.outputs().empty()) return;  // it has thrown
    sum->flops += 2.0 * static_cast<double>(static_cast<Terms*>(begun)->terms) *
                  static_cast<double>(call.outputs()[0].toTensor().numel());
  }

  std::shared_ptr<Sum> sum_;
  c10::DebugInfoGuard state_;
  at::CallbackHandle callback_;
};

// Forward of one block.
struct ForwardCount {
  double flops = 0;
  Values outputs;
};

// Forwards of a batch, as in training; no gradient is asked for.
class ForwardPass final : private Surroundings {
 public:
  ForwardPass(const Chain& chain, const Batch& batch)
      : batch_(batch),
        calls_(chain, {.stand_in = 2}),
        blocks_(chain, *this, {.calls = &calls_}),
        size_(chain.blocks.size()) {
    batch_.ids.clear();
    for (int64_t i = 0; i < batch.count; ++i) batch_.ids.push_back(i);
  }

  std::vector<ForwardCount> count() {
    std::vector<ForwardCount> counts;
    for (int b = 0; b < static_cast<int>(size_); ++b) {
      const FlopCounter counter;
      blocks_.forward(b, 0, /*keeps_graph=*/true);
      counts.push_back({.flops = counter.flops(),
                        .outputs = cut_graph(blocks_.output(b, 0), false)});
    }
    return counts;
  }

 private:
  const Batch& batch(int) override { return batch_; }
  void keep_loss(int, const WeightedLoss&) override {}
  Tensor seed() override { return {}; }
  GradTarget home(const Addend&) override { return {}; }

  Batch batch_;
  CheckedCalls calls_;
  BlockRunner blocks_;
  size_t size_;
};

// Through what was counted for `samples` and for twice as many.
Line through_counts(double samples, double few, double more) {
  const double slope = (more - few) / samples;
  return {few - slope * samples, slope};
}

CountedValue counted_value(double samples, const Tensor& few, const Tensor& more) {
  CountedValue value{
      .dtype = few.scalar_type(), .format = few.suggest_memory_format(), .dims = {}};
  for (int64_t d = 0; d < few.dim(); ++d)
    value.dims.push_back(through_counts(samples, static_cast<double>(few.size(d)),
                                        static_cast<double>(more.size(d))));
  return value;
}

std::vector<BlockCount> counted(const Chain& chain,
                                const std::function<Batch(int64_t)>& batch,
                                int64_t samples) {
  const auto n = static_cast<double>(samples);
  const auto few = ForwardPass(chain, batch(samples)).count();
  const auto more = ForwardPass(chain, batch(2 * samples)).count();
  std::vector<BlockCount> counts;
  for (auto& measure : measure_blocks(chain, batch, samples)) {
    const size_t b = counts.size();
    measure.seconds = {};
    measure.flops = through_counts(n, few[b].flops, more[b].flops);
    BlockCount count{.needs = measure, .outputs = {}};
    for (size_t i = 0; i < few[b].outputs.size(); ++i)
      count.outputs.push_back(
          counted_value(n, few[b].outputs[i], more[b].outputs.at(i)));
    counts.push_back(std::move(count));
  }
  return counts;
}

}  // namespace

std::vector<int64_t> CountedValue::shape(int64_t samples) const {
  std::vector<int64_t> out;
  for (const Line& dim : dims)
    out.push_back(std::llround(dim.at(static_cast<double>(samples))));
  return out;
}

std::optional<std::vector<BlockCount>> count_blocks(
    const Chain& on_meta, const std::function<Batch(int64_t)>& batch, int64_t samples) {
  for (const auto& parameter : on_meta.parameters())
    COHORT_CHECK(parameter.tensor.is_meta(), parameter.name, " has memory");
  prepare_meta_device();
  try {
    return counted(on_meta, batch, samples);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

std::optional<std::vector<BlockCount>> count_blocks(const Chain& on_meta,
                                                    const Dataset& data) {
  constexpr int64_t kSamples = 2;
  const auto batch = [&](int64_t samples) {
    Batch batch = some_samples(on_meta, data, samples);
    for (auto& [name, tensor] : batch.fields) tensor = tensor.to(at::kMeta);
    return batch;
  };
  return count_blocks(on_meta, batch, kSamples);
}

std::vector<BlockMeasure> needs_of(std::span<const BlockCount> counts) {
  std::vector<BlockMeasure> out;
  for (const auto& count : counts) out.push_back(count.needs);
  return out;
}

void take_flops(std::span<const BlockCount> counts, std::span<BlockMeasure> measures) {
  COHORT_CHECK(counts.size() == measures.size(), "one count per block");
  for (size_t b = 0; b < counts.size(); ++b) measures[b].flops = counts[b].needs.flops;
}

Line forward_flops(std::span<const BlockCount> counts) {
  Line sum;
  for (const auto& count : counts) {
    sum.fixed += count.needs.flops.fixed;
    sum.per_sample += count.needs.flops.per_sample;
  }
  return sum;
}

}  // namespace cohort
