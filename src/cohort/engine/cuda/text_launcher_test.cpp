// SPDX-License-Identifier: Apache-2.0
// The text of the kernels, compiled for the host: a grid of a few blocks, one after
// another, of one thread or of several that meet as those of a GPU do. So what kernels
// do is tested where there is no GPU.
#include <c10/util/Half.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_kernels.h"
#include "cohort/engine/cuda/testing_kernels.h"

#define __device__
#define __shared__ static

namespace cohort::kernels {

struct GridIndex {
  unsigned int x = 0;
};
static GridIndex blockIdx, gridDim, blockDim{1};
static thread_local GridIndex threadIdx;
static std::barrier<>* block_barrier = nullptr;  // null: one thread is the block

inline void __syncthreads() {
  if (block_barrier) block_barrier->arrive_and_wait();
}
inline int64_t device_time() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
inline void atomicAdd(unsigned long long* to, unsigned long long x) {
  std::atomic_ref(*to) += x;
}
inline float __uint_as_float(unsigned int bits) { return std::bit_cast<float>(bits); }
inline unsigned int __float_as_uint(float x) { return std::bit_cast<unsigned int>(x); }
inline float half_as_float(unsigned short bits) {
  return c10::detail::fp16_ieee_to_fp32_value(bits);
}
inline unsigned short float_as_half(float x) {
  return c10::detail::fp16_ieee_from_fp32_value(x);
}

}  // namespace cohort::kernels

#include "cohort/engine/cuda/kernels/logits.cuh"
#include "cohort/engine/cuda/kernels/updates.cuh"

namespace cohort::kernels {

using TextKernel = void (*)(const void*);

#define COHORT_KERNEL(Arguments, ...)                                         \
  {                                                                           \
#__VA_ARGS__,                                                             \
        [](const void* a) { __VA_ARGS__(*static_cast<const Arguments*>(a)); } \
  }
#define COHORT_TYPED(Type)                                          \
  COHORT_KERNEL(SumArguments, sum_inputs<Type, false>),             \
      COHORT_KERNEL(SumArguments, sum_inputs<Type, true>),          \
      COHORT_KERNEL(NarrowArguments, narrow<Type>),                 \
      COHORT_KERNEL(FiniteArguments, mark_not_finite<Type>),        \
      COHORT_KERNEL(FiniteArguments, mark_chunks_not_finite<Type>), \
      COHORT_KERNEL(ChunkArguments, square_sums<Type>),             \
      COHORT_KERNEL(LogitArguments, row_numbers<Type>),             \
      COHORT_KERNEL(LogitArguments, turn_into_gradient<Type>)
#define COHORT_UPDATE(Rule, Type)                                \
  COHORT_KERNEL(UpdateArguments, update<Rule, Type, Nothing>),   \
      COHORT_KERNEL(UpdateArguments, update<Rule, Type, float>), \
      COHORT_KERNEL(UpdateArguments, update<Rule, Type, Half>),  \
      COHORT_KERNEL(UpdateArguments, update<Rule, Type, Bfloat16>)
#define COHORT_RULE(Rule) \
  COHORT_UPDATE(Rule, float), COHORT_UPDATE(Rule, Bfloat16), COHORT_UPDATE(Rule, Half)
#define COHORT_REDUCE(Rule)                                   \
  COHORT_KERNEL(UpdateArguments, reduce<Rule, float>),        \
      COHORT_KERNEL(UpdateArguments, reduce<Rule, Bfloat16>), \
      COHORT_KERNEL(UpdateArguments, reduce<Rule, Half>)

const std::map<std::string, TextKernel>& text_kernels() {
  static const std::map<std::string, TextKernel> kAll = {
      COHORT_TYPED(float),
      COHORT_TYPED(Bfloat16),
      COHORT_TYPED(Half),
      COHORT_KERNEL(FoldArguments, fold<2>),
      COHORT_KERNEL(FoldArguments, fold<4>),
      COHORT_KERNEL(FoldArguments, fold<8>),
      COHORT_KERNEL(FoldArguments, fold<32>),
      COHORT_KERNEL(NormArguments, norm),
      COHORT_KERNEL(VoteArguments, cast_vote),
      COHORT_KERNEL(CountArguments, count_votes),
      COHORT_KERNEL(TimeArguments, write_time),
      COHORT_KERNEL(TreeArguments, add_chunks),
      COHORT_KERNEL(ElementArguments, sum_elements<uint8_t>),
      COHORT_KERNEL(ElementArguments, sum_elements<uint16_t>),
      COHORT_KERNEL(ElementArguments, sum_elements<uint32_t>),
      COHORT_KERNEL(ElementArguments, sum_elements<uint64_t>),
      COHORT_RULE(SgdPlain),
      COHORT_RULE(SgdMomentum),
      COHORT_RULE(SgdNesterov),
      COHORT_RULE(LarsPlain),
      COHORT_RULE(LarsMomentum),
      COHORT_RULE(LarsNesterov),
      COHORT_RULE(Adam),
      COHORT_RULE(AdamW),
      COHORT_RULE(Lamb),
      COHORT_REDUCE(LarsPlain),
      COHORT_REDUCE(LarsMomentum),
      COHORT_REDUCE(LarsNesterov),
      COHORT_REDUCE(Lamb)};
  return kAll;
}

}  // namespace cohort::kernels

namespace cohort {
namespace {

class TextLauncher final : public KernelLauncher {
 public:
  explicit TextLauncher(int threads) : threads_(threads) {}

  at::Device device() const override { return at::kCPU; }

  int load(const KernelProgram& program) override {
    const int first = static_cast<int>(loaded_.size());
    for (const KernelSpec& kernel : program.kernels)
      loaded_.push_back(kernels::text_kernels().at(kernel.function));
    return first;
  }

  void launch(int kernel, int64_t blocks, const void* arguments) override {
    kernels::gridDim.x = static_cast<unsigned int>(std::min<int64_t>(blocks, 3));
    for (unsigned int b = 0; b < kernels::gridDim.x; ++b) {
      kernels::blockIdx.x = b;
      run_block(loaded_.at(static_cast<size_t>(kernel)), arguments);
    }
  }

 private:
  void run_block(kernels::TextKernel kernel, const void* arguments) const {
    kernels::blockDim.x = static_cast<unsigned int>(threads_);
    if (threads_ == 1) return kernel(arguments);
    std::barrier<> barrier(threads_);
    kernels::block_barrier = &barrier;
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_; ++t)
      threads.emplace_back([&, t] {
        kernels::threadIdx.x = static_cast<unsigned int>(t);
        kernel(arguments);
        barrier.arrive_and_drop();
      });
    for (auto& thread : threads) thread.join();
    kernels::block_barrier = nullptr;
  }

  int threads_;
  std::vector<kernels::TextKernel> loaded_;
};

}  // namespace

std::vector<test::KernelsUnderTest> test::kernels_under_test() {
  const auto always = [] { return std::string(); };
  return {{"Loops", always, make_host_kernels, /*has_logits=*/false},
          {"Text", always,
           [] { return make_device_kernels(std::make_unique<TextLauncher>(1)); }},
          {"Threads", always,
           [] { return make_device_kernels(std::make_unique<TextLauncher>(37)); }}};
}

}  // namespace cohort
