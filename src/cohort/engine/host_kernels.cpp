// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>

#include "cohort/core/error.h"
#include "cohort/engine/state_kernels.h"
#include "cohort/engine/sum.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/element_sum.h"

namespace cohort {
namespace {

StepNumbers& numbers_in(const Tensor& numbers) {
  return *static_cast<StepNumbers*>(numbers.data_ptr());
}

template <typename Row>
std::span<const Row> table_rows(const Tensor& table) {
  return {static_cast<const Row*>(table.const_data_ptr()),
          static_cast<size_t>(table.size(0))};
}

std::span<const double> row_of(const Tensor& sums, int64_t row) {
  const auto width = static_cast<size_t>(sums.size(1));
  return {sums.const_data_ptr<double>() + row * sums.size(1), width};
}

class HostShardUpdate final : public ShardUpdate {
 public:
  explicit HostShardUpdate(const ShardUpdateOptions& options)
      : rule_(make_update_rule(options.rule)), ranges_(options.ranges) {}

  void reduce(const ShardMemory& shard, const Tensor& gradient, const Tensor& numbers,
              const Tensor& sums) override {
    std::vector<float> widened;
    std::vector<const float*> states(shard.states.size());
    for (const UpdateRange& range : ranges_) {
      if (!range.traits.adapts || rule_->reductions() == 0) continue;
      int64_t slot = range.slot;
      for (int64_t at = range.begin; at < range.end; at += kNormChunk, ++slot) {
        const int64_t count = std::min(kNormChunk, range.end - at);
        for (size_t k = 0; k < states.size(); ++k)
          states[k] = shard.states[k].const_data_ptr<float>() + at;
        rule_->reduce({shard.master.const_data_ptr<float>() + at,
                       widened_part(gradient, at, count, widened), states, count},
                      range.traits, scalars(numbers),
                      std::span(sums.data_ptr<double>() + slot * sums.size(1),
                                static_cast<size_t>(sums.size(1))));
      }
    }
  }

  void apply(const ShardMemory& shard, const Tensor& gradient, const Tensor& numbers,
             const Tensor& totals) override {
    if (numbers_in(numbers).gate == 0) return;
    for (const UpdateRange& range : ranges_)
      for (int64_t at = range.begin; at < range.end; at += kStretch)
        apply_stretch(shard, gradient, numbers, totals, range, at,
                      std::min(kStretch, range.end - at));
  }

 private:
  void apply_stretch(const ShardMemory& shard, const Tensor& gradient,
                     const Tensor& numbers, const Tensor& totals,
                     const UpdateRange& range, int64_t at, int64_t count) {
    std::vector<float*> states;
    for (const Tensor& state : shard.states)
      states.push_back(state.data_ptr<float>() + at);
    float* const master = shard.master.data_ptr<float>() + at;
    const bool adapts = range.traits.adapts && rule_->reductions() > 0;
    rule_->apply({master, widened_part(gradient, at, count, widened_), states, count},
                 range.traits,
                 adapts ? row_of(totals, range.place) : std::span<const double>(),
                 scalars(numbers));
    if (const Tensor& to = shard.published; to.defined())
      cohort::narrow(to.scalar_type(), master, count,
                     static_cast<std::byte*>(to.data_ptr()) + at * to.element_size());
  }

  static StepScalars scalars(const Tensor& given) {
    const StepNumbers& numbers = numbers_in(given);
    return {
        .rate = numbers.rate, .grad_scale = numbers.grad_scale, .step = numbers.step};
  }

  std::unique_ptr<UpdateRule> rule_;
  std::vector<UpdateRange> ranges_;
  std::vector<float> widened_;
};

class HostKernels final : public StateKernels {
 public:
  at::Device device() const override { return at::kCPU; }

  void sum_in_order(std::span<const Tensor> inputs, const Tensor& out) override {
    std::vector<const void*> pointers;
    for (const Tensor& input : inputs) pointers.push_back(input.const_data_ptr());
    cohort::sum_in_order(inputs.empty() ? at::kFloat : inputs[0].scalar_type(),
                         pointers, out.numel(), out.data_ptr<float>());
  }

  void widen(const Tensor& in, const Tensor& out) override {
    cohort::widen(in.scalar_type(), in.const_data_ptr(), in.numel(),
                  out.data_ptr<float>());
  }

  void widen_add(const Tensor& in, const Tensor& out) override {
    cohort::widen_add(in.scalar_type(), in.const_data_ptr(), in.numel(),
                      out.data_ptr<float>());
  }

  void narrow(const Tensor& in, const Tensor& out) override {
    cohort::narrow(out.scalar_type(), in.const_data_ptr<float>(), in.numel(),
                   out.data_ptr());
  }

  void fold(TreeFold& fold, std::span<const Tensor> values,
            std::span<const Tensor> out) override {
    std::vector<const float*> from;
    for (const Tensor& value : values) from.push_back(value.const_data_ptr<float>());
    std::vector<float*> to;
    for (const Tensor& sum : out) to.push_back(sum.data_ptr<float>());
    fold(from, out.empty() ? 0 : out[0].numel(), to);
  }

  void mark_not_finite(const Tensor& values, const Tensor& flag) override {
    std::vector<float> widened;
    for (int64_t at = 0; at < values.numel(); at += kStretch) {
      const int64_t count = std::min(kStretch, values.numel() - at);
      if (!all_finite(widened_part(values, at, count, widened), count))
        *flag.data_ptr<int32_t>() = 1;
    }
  }

  void mark_chunks_not_finite(const Tensor& values, const Tensor& chunks,
                              const Tensor& flag) override {
    for (const auto& chunk : table_rows<kernels::Chunk>(chunks))
      mark_not_finite(values.narrow(0, chunk.begin, chunk.count), flag);
  }

  void cast_vote(const Tensor& numbers, const Tensor& hindered, const Tensor& stop,
                 const Tensor& word) override {
    if (hindered.item<bool>()) return;
    if (stop.defined() &&
        std::atomic_ref(*stop.mutable_data_ptr<int32_t>()).load() != 0)
      return;
    StepNumbers& step = numbers_in(numbers);
    step.voted = step.step;
    *word.mutable_data_ptr<int64_t>() = 2 * step.step + (step.not_finite ? 0 : 1);
  }

  void count_votes(const Tensor& words, const Tensor& numbers) override {
    StepNumbers& step = numbers_in(numbers);
    const std::span all(words.const_data_ptr<int64_t>(),
                        static_cast<size_t>(words.numel()));
    const auto of_step = [&](int64_t word) { return word / 2 == step.step; };
    const bool decided = std::ranges::all_of(all, of_step);
    if (decided) step.decided = step.step;
    const auto is_good = [](int64_t word) { return word % 2 == 1; };
    step.gate = decided && std::ranges::all_of(all, is_good) ? 1 : 0;
  }

  void square_sums(const Tensor& values, const Tensor& chunks,
                   const Tensor& sums) override {
    std::vector<float> widened;
    for (const auto& chunk : table_rows<kernels::Chunk>(chunks))
      cohort::square_sums(widened_part(values, chunk.begin, chunk.count, widened),
                          chunk.count,
                          std::span(sums.data_ptr<double>() + chunk.slot, 1));
  }

  void norm(const Tensor& sums, double limit, const Tensor& given) override {
    StepNumbers& numbers = numbers_in(given);
    numbers.norm = norm_of(
        std::span(sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())),
        numbers.mean_scale);
    numbers.grad_scale = numbers.mean_scale;
    if (limit > 0) numbers.grad_scale *= clip_factor(numbers.norm, limit);
    if (!std::isfinite(numbers.norm)) numbers.not_finite = 1;
  }

  void add_chunks(const Tensor& sums, const Tensor& tensors,
                  const Tensor& totals) override {
    const auto width = static_cast<size_t>(sums.size(1));
    double* to = totals.data_ptr<double>();
    for (const auto& tensor : table_rows<kernels::TensorChunks>(tensors)) {
      cohort::add_chunks(
          std::span(row_of(sums, tensor.first).data(), tensor.count * width),
          std::span(to, width));
      to += width;
    }
  }

  void sum_elements(const Tensor& data, int64_t first, int64_t stride, uint64_t seed,
                    const Tensor& sum) override {
    *sum.data_ptr<int64_t>() += static_cast<int64_t>(cohort::sum_elements(
        {.data = data.const_data_ptr(),
         .count = data.numel(),
         .element_bytes = static_cast<int64_t>(data.element_size()),
         .first = first,
         .stride = stride},
        seed));
  }

  void write_time(const Tensor& at) override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    *at.mutable_data_ptr<int64_t>() =
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }

  std::unique_ptr<ShardUpdate> make_shard_update(
      const ShardUpdateOptions& options) override {
    return std::make_unique<HostShardUpdate>(options);
  }
};

}  // namespace

std::unique_ptr<StateKernels> make_host_kernels() {
  return std::make_unique<HostKernels>();
}

}  // namespace cohort
