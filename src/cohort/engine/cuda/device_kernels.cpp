// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_kernels.h"

#include <algorithm>
#include <array>

#include "cohort/core/error.h"
#include "cohort/core/mix.h"
#include "cohort/engine/cuda/device_logits.h"
#include "cohort/engine/cuda/kernel_types.h"
#include "cohort/engine/cuda/shard_update.h"
#include "cohort/step/logit_kernels.h"

namespace cohort {
namespace {

using kernels::kThreads;

constexpr std::array<int, 4> kDepths = {2, 4, 8, kernels::kMostLeft};

// Numbers of kernels in sum_program(): those of a dtype, one dtype after another, then
// the others.
enum TypedKernel {
  kSum,
  kSumOnTop,
  kNarrow,
  kFinite,
  kChunksFinite,
  kSquares,
  kTypedKernels
};
enum OtherKernel {
  kFold = 3 * kTypedKernels,
  kNorm = kFold + static_cast<int>(kDepths.size()),
  kVote,
  kCount,
  kTime,
  kAddChunks,
  kElements,  // by log2 of their bytes
};

int typed_kernel(TypedKernel kernel, at::ScalarType dtype) {
  return kernel_type(dtype) * kTypedKernels + kernel;
}

// Every thread has a pack of elements, or more.
int64_t blocks_for(int64_t elements) {
  constexpr int64_t kAtOnce = int64_t{kThreads} * 4;
  return (elements + kAtOnce - 1) / kAtOnce;
}

int64_t blocks_of_chunks(int64_t chunks) {
  constexpr int64_t kAtOnce = kThreads / 8;
  return (chunks + kAtOnce - 1) / kAtOnce;
}

class DeviceKernels final : public StateKernels {
 public:
  explicit DeviceKernels(std::unique_ptr<KernelLauncher> launcher)
      : launcher_(std::move(launcher)),
        sums_(launcher_->load(sum_program())),
        logits_(*launcher_) {}

  at::Device device() const override { return launcher_->device(); }

  void sum_in_order(std::span<const Tensor> inputs, const Tensor& out) override {
    if (inputs.empty()) {
      out.zero_();
      return;
    }
    // As many as a launch takes; the others on top of them, in the same order.
    for (size_t at = 0; at < inputs.size(); at += kernels::kMostInputs)
      add(inputs.subspan(at,
                         std::min<size_t>(kernels::kMostInputs, inputs.size() - at)),
          out, at == 0 ? kSum : kSumOnTop);
  }

  void widen(const Tensor& in, const Tensor& out) override {
    add(std::span(&in, 1), out, kSum);
  }

  void widen_add(const Tensor& in, const Tensor& out) override {
    add(std::span(&in, 1), out, kSumOnTop);
  }

  void narrow(const Tensor& in, const Tensor& out) override {
    check(in, out.numel());
    check(out, out.numel());
    launch(typed_kernel(kNarrow, out.scalar_type()), blocks_for(in.numel()),
           kernels::NarrowArguments{in.const_data_ptr<float>(), out.data_ptr(),
                                    in.numel()});
  }

  void fold(TreeFold& fold, std::span<const Tensor> values,
            std::span<const Tensor> out) override {
    COHORT_CHECK(values.size() == fold.merges().size() &&
                     out.size() == fold.left().size() && !values.empty() &&
                     values.size() <= kernels::kMostNodes &&
                     out.size() <= kernels::kMostLeft,
                 values.size(), " values, ", out.size(), " sums");
    kernels::FoldArguments arguments{};
    arguments.count = out[0].numel();
    arguments.num_values = static_cast<int32_t>(values.size());
    arguments.num_out = static_cast<int32_t>(out.size());
    int height = 0, depth = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      check(values[i], arguments.count);
      arguments.values[i] = values[i].const_data_ptr<float>();
      arguments.merges[i] = static_cast<int8_t>(fold.merges()[i]);
      height += 1 - fold.merges()[i];
      depth = std::max(depth, height);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      check(out[i], arguments.count);
      arguments.out[i] = out[i].data_ptr<float>();
    }
    const auto fits = std::ranges::lower_bound(kDepths, depth);
    COHORT_CHECK(fits != kDepths.end(), depth, " sums wait at once");
    launch(kFold + static_cast<int>(fits - kDepths.begin()),
           blocks_for(arguments.count), arguments);
  }

  void mark_not_finite(const Tensor& values, const Tensor& flag) override {
    check(values, values.numel());
    launch(typed_kernel(kFinite, values.scalar_type()), blocks_for(values.numel()),
           kernels::FiniteArguments{values.const_data_ptr(), values.numel(), nullptr, 0,
                                    flag.data_ptr<int32_t>()});
  }

  void mark_chunks_not_finite(const Tensor& values, const Tensor& chunks,
                              const Tensor& flag) override {
    check(values, values.numel());
    launch(typed_kernel(kChunksFinite, values.scalar_type()), chunks.size(0),
           kernels::FiniteArguments{
               values.const_data_ptr(), values.numel(),
               static_cast<const kernels::Chunk*>(chunks.const_data_ptr()),
               chunks.size(0), flag.data_ptr<int32_t>()});
  }

  void cast_vote(const Tensor& numbers, const Tensor& hindered, const Tensor& stop,
                 const Tensor& word) override {
    launch(kVote, 1,
           kernels::VoteArguments{
               static_cast<StepNumbers*>(numbers.data_ptr()),
               hindered.const_data_ptr<bool>(),
               stop.defined() ? stop.const_data_ptr<int32_t>() : nullptr,
               word.data_ptr<int64_t>()});
  }

  void count_votes(const Tensor& words, const Tensor& numbers) override {
    launch(kCount, 1,
           kernels::CountArguments{static_cast<StepNumbers*>(numbers.data_ptr()),
                                   words.const_data_ptr<int64_t>(), words.numel()});
  }

  void square_sums(const Tensor& values, const Tensor& chunks,
                   const Tensor& sums) override {
    check(values, values.numel());
    launch(typed_kernel(kSquares, values.scalar_type()),
           blocks_of_chunks(chunks.size(0)),
           kernels::ChunkArguments{
               values.const_data_ptr(),
               static_cast<const kernels::Chunk*>(chunks.const_data_ptr()),
               chunks.size(0), sums.data_ptr<double>()});
  }

  void norm(const Tensor& sums, double limit, const Tensor& numbers) override {
    launch(kNorm, 1,
           kernels::NormArguments{sums.const_data_ptr<double>(), sums.numel(), limit,
                                  static_cast<StepNumbers*>(numbers.data_ptr())});
  }

  void add_chunks(const Tensor& sums, const Tensor& tensors,
                  const Tensor& totals) override {
    launch(kAddChunks, tensors.size(0) * sums.size(1),
           kernels::TreeArguments{
               sums.const_data_ptr<double>(),
               static_cast<const kernels::TensorChunks*>(tensors.const_data_ptr()),
               tensors.size(0), sums.size(1), totals.data_ptr<double>()});
  }

  void sum_elements(const Tensor& data, int64_t first, int64_t stride, uint64_t seed,
                    const Tensor& sum) override {
    check(data, data.numel());
    int kernel = kElements;
    for (size_t bytes = data.element_size(); bytes > 1; bytes /= 2) ++kernel;
    launch(kernel, blocks_for(data.numel()),
           kernels::ElementArguments{data.const_data_ptr(), data.numel(),
                                     seed + kGolden64 * static_cast<uint64_t>(first),
                                     kGolden64 * static_cast<uint64_t>(stride),
                                     static_cast<uint64_t*>(sum.data_ptr())});
  }

  void write_time(const Tensor& at) override {
    launch(kTime, 1, kernels::TimeArguments{at.data_ptr<int64_t>()});
  }

  LogitKernels* logits() override { return &logits_; }

  // Shards with the same rule and dtypes have one program.
  std::unique_ptr<ShardUpdate> make_shard_update(
      const ShardUpdateOptions& options) override {
    const KernelProgram program = update_program(options);
    const auto [it, fresh] = updates_.try_emplace(program.kernels[0].function);
    if (fresh) it->second = launcher_->load(program);
    return std::make_unique<DeviceShardUpdate>(*launcher_, it->second, options);
  }

 private:
  void check(const Tensor& tensor, int64_t numel) const {
    COHORT_CHECK(tensor.numel() == numel && tensor.is_contiguous() &&
                     tensor.device() == device(),
                 "a tensor of ", tensor.sizes(), " on ", tensor.device().str(), "; ",
                 numel, " elements on ", device().str());
  }

  template <typename Arguments>
  void launch(int kernel, int64_t blocks, const Arguments& arguments) {
    launcher_->launch(sums_ + kernel, blocks, &arguments);
  }

  void add(std::span<const Tensor> inputs, const Tensor& out, TypedKernel kernel) {
    kernels::SumArguments arguments{};
    check(out, out.numel());
    for (size_t i = 0; i < inputs.size(); ++i) {
      check(inputs[i], out.numel());
      COHORT_CHECK(inputs[i].scalar_type() == inputs[0].scalar_type(), "one dtype");
      arguments.inputs[i] = inputs[i].const_data_ptr();
    }
    arguments.out = out.data_ptr<float>();
    arguments.count = out.numel();
    arguments.num_inputs = static_cast<int32_t>(inputs.size());
    launch(typed_kernel(kernel, inputs[0].scalar_type()), blocks_for(out.numel()),
           arguments);
  }

  std::unique_ptr<KernelLauncher> launcher_;
  int sums_;  // number of the first kernel of sum_program()
  DeviceLogits logits_;
  std::map<std::string, int> updates_;  // the same of update programs
};

}  // namespace

KernelProgram sum_program() {
  KernelProgram program{"sums", {}};
  const auto add = [&](std::string function, const char* arguments) {
    program.kernels.push_back({std::move(function), arguments});
  };
  for (const char* type : kKernelTypes) {
    add(text("sum_inputs<", type, ", false>"), "SumArguments");
    add(text("sum_inputs<", type, ", true>"), "SumArguments");
    add(text("narrow<", type, ">"), "NarrowArguments");
    add(text("mark_not_finite<", type, ">"), "FiniteArguments");
    add(text("mark_chunks_not_finite<", type, ">"), "FiniteArguments");
    add(text("square_sums<", type, ">"), "ChunkArguments");
  }
  for (const int depth : kDepths) add(text("fold<", depth, ">"), "FoldArguments");
  add("norm", "NormArguments");
  add("cast_vote", "VoteArguments");
  add("count_votes", "CountArguments");
  add("write_time", "TimeArguments");
  add("add_chunks", "TreeArguments");
  for (const int bits : {8, 16, 32, 64})
    add(text("sum_elements<uint", bits, "_t>"), "ElementArguments");
  return program;
}

std::unique_ptr<StateKernels> make_device_kernels(
    std::unique_ptr<KernelLauncher> launcher) {
  return std::make_unique<DeviceKernels>(std::move(launcher));
}

}  // namespace cohort
