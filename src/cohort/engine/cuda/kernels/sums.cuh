// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums of gradients, and what is asked of them: engine/sum.h, optim/gradient_norm.h and
// step/element_sum.h on a device, in the same order of adding.

#include "cohort/engine/cuda/kernels/memory.cuh"
#include "cohort/optim/sum_arithmetic.h"
#include "cohort/optim/update_arithmetic.h"
#include "cohort/step/element_sum.h"

namespace cohort::kernels {

// out = the inputs added in their order; kOnTop: out + the inputs.
template <typename In, bool kOnTop>
__device__ inline void sum_inputs(const SumArguments& a) {
  const auto input = [&](int k) { return static_cast<const In*>(a.inputs[k]); };
  bool packed = packs(a.out);
  for (int k = 0; k < a.num_inputs; ++k) packed = packed && packs(input(k));
  const int first = kOnTop ? 0 : 1;
  const auto by_pack = [&](int64_t i) {
    Pack<float> sum = kOnTop ? load_pack(a.out + i) : load_wide(input(0) + i);
#pragma unroll 4
    for (int k = first; k < a.num_inputs; ++k) {
      const Pack<float> next = load_wide(input(k) + i);
      for (int e = 0; e < kPack; ++e) sum.at[e] += next.at[e];
    }
    store_pack(a.out + i, sum);
  };
  const auto by_element = [&](int64_t i) {
    float sum = kOnTop ? a.out[i] : widened(input(0)[i]);
    for (int k = first; k < a.num_inputs; ++k) sum += widened(input(k)[i]);
    a.out[i] = sum;
  };
  for_elements(a.count, packed, thread_of_grid(), threads_of_grid(), by_pack,
               by_element);
}

template <typename Out>
__device__ inline void narrow(const NarrowArguments& a) {
  Out* const out = static_cast<Out*>(a.out);
  for_elements(
      a.count, packs(a.in) && packs(out), thread_of_grid(), threads_of_grid(),
      [&](int64_t i) { store_pack(out + i, load_pack(a.in + i)); },
      [&](int64_t i) { put(out[i], a.in[i]); });
}

// A stack that lies in registers, which have no index: so its top stays in one place
// and the rest moves.
template <int kDepth, typename Value>
struct Stack {
  Value at[kDepth];

  __device__ inline void push(const Value& value) {
#pragma unroll
    for (int k = kDepth - 1; k > 0; --k) at[k] = at[k - 1];
    at[0] = value;
  }
  __device__ inline Value pop() {
    const Value value = at[0];
#pragma unroll
    for (int k = 1; k < kDepth; ++k) at[k - 1] = at[k];
    return value;
  }
};

// As TreeFold: values are pushed, and the last added to the one before it as often as
// the tree says. kDepth: the most that wait at once. Loads run one ahead.
template <int kDepth, typename Value, typename Load, typename Add, typename Store>
__device__ inline void fold_at(const FoldArguments& a, const Load& load, const Add& add,
                               const Store& store) {
  Stack<kDepth, Value> stack = {};
  Value next = load(a.values[0]);
  for (int k = 0; k < a.num_values; ++k) {
    Value value = next;
    if (k + 1 < a.num_values) next = load(a.values[k + 1]);
    for (int m = 0; m < a.merges[k]; ++m) value = add(stack.pop(), value);
    stack.push(value);
  }
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
    if (k < a.num_out) store(a.out[a.num_out - 1 - k], stack.at[k]);
}

template <int kDepth>
__device__ inline void fold(const FoldArguments& a) {
  bool packed = true;
  for (int k = 0; k < a.num_values; ++k) packed = packed && packs(a.values[k]);
  for (int k = 0; k < a.num_out; ++k) packed = packed && packs(a.out[k]);
  const auto by_pack = [&](int64_t i) {
    fold_at<kDepth, Pack<float>>(
        a, [&](const float* from) { return load_pack(from + i); },
        [](const Pack<float>& left, const Pack<float>& right) {
          Pack<float> sum;
          for (int e = 0; e < kPack; ++e) sum.at[e] = left.at[e] + right.at[e];
          return sum;
        },
        [&](float* to, const Pack<float>& sum) { store_pack(to + i, sum); });
  };
  const auto by_element = [&](int64_t i) {
    fold_at<kDepth, float>(
        a, [&](const float* from) { return from[i]; },
        [](float left, float right) { return left + right; },
        [&](float* to, float sum) { to[i] = sum; });
  };
  for_elements(a.count, packed, thread_of_grid(), threads_of_grid(), by_pack,
               by_element);
}

// x - x is 0 for every finite x, and no number otherwise.
__device__ inline bool is_finite(float x) { return x - x == 0; }

// Looks at `count` values, shared out as for_elements() does.
template <typename In>
__device__ inline bool all_finite(const In* values, int64_t count, int64_t first,
                                  int64_t step) {
  bool finite = true;
  for_elements(
      count, packs(values), first, step,
      [&](int64_t i) {
        const Pack<float> x = load_wide(values + i);
        for (int e = 0; e < kPack; ++e) finite = finite && is_finite(x.at[e]);
      },
      [&](int64_t i) { finite = finite && is_finite(widened(values[i])); });
  return finite;
}

// Any other thread that writes the flag writes the same.
template <typename In>
__device__ inline void mark_not_finite(const FiniteArguments& a) {
  if (!all_finite(static_cast<const In*>(a.values), a.count, thread_of_grid(),
                  threads_of_grid()))
    *a.flag = 1;
}

template <typename In>
__device__ inline void mark_chunks_not_finite(const FiniteArguments& a) {
  bool finite = true;
  for (int64_t c = blockIdx.x; c < a.num_chunks; c += gridDim.x) {
    const Chunk chunk = a.chunks[c];
    const In* const values = static_cast<const In*>(a.values) + chunk.begin;
    if (!all_finite(values, chunk.count, threadIdx.x, blockDim.x)) finite = false;
  }
  if (!finite) *a.flag = 1;
}

__device__ inline void write_time(const TimeArguments& a) {
  if (thread_of_grid() == 0) *a.at = device_time();
}

// The host may write the word that stops it at any time.
__device__ inline void cast_vote(const VoteArguments& a) {
  if (thread_of_grid() != 0 || *a.hindered) return;
  if (a.stop && *static_cast<const volatile int32_t*>(a.stop) != 0) return;
  a.numbers->voted = a.numbers->step;
  *a.word = 2 * a.numbers->step + (a.numbers->not_finite ? 0 : 1);
}

__device__ inline void count_votes(const CountArguments& a) {
  if (thread_of_grid() != 0) return;
  bool all = true, good = true;
  for (int64_t i = 0; i < a.count; ++i) {
    all = all && a.words[i] / 2 == a.numbers->step;
    good = good && a.words[i] % 2 == 1;
  }
  if (all) a.numbers->decided = a.numbers->step;
  a.numbers->gate = all && good ? 1 : 0;
}

// Sums of squares of chunks, a thread for each lane of a chunk. lane_sum(chunk, lane)
// gives one lane, done(chunk, sum) takes the sum of all.
template <typename LaneSum, typename Done>
__device__ inline void for_chunks(int64_t num_chunks, const LaneSum& lane_sum,
                                  const Done& done) {
  constexpr int kLanes = arithmetic::kSumLanes;
  constexpr int kAtOnce = kThreads / kLanes;
  __shared__ double lanes[kThreads];
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kAtOnce; begin < num_chunks;
       begin += static_cast<int64_t>(gridDim.x) * kAtOnce) {
    for (int t = threadIdx.x; t < kThreads; t += blockDim.x)
      lanes[t] = begin + t / kLanes < num_chunks
                     ? lane_sum(begin + t / kLanes, t % kLanes)
                     : 0;
    __syncthreads();
    for (int c = threadIdx.x; c < kAtOnce; c += blockDim.x)
      if (begin + c < num_chunks)
        done(begin + c, arithmetic::join_lanes(lanes + c * kLanes));
    __syncthreads();
  }
}

template <typename In>
__device__ inline void square_sums(const ChunkArguments& a) {
  const In* const values = static_cast<const In*>(a.values);
  for_chunks(
      a.num_chunks,
      [&](int64_t c, int lane) {
        const Chunk chunk = a.chunks[c];
        const In* const from = values + chunk.begin;
        return arithmetic::lane_square_sum(chunk.count, lane,
                                           [&](int64_t i) { return widened(from[i]); });
      },
      [&](int64_t c, double sum) { a.sums[a.chunks[c].slot] = sum; });
}

// One block: the host adds from first to last, so one thread does; the others bring.
__device__ inline void norm(const NormArguments& a) {
  __shared__ double near[kNormChunk];
  double total = 0;
  for (int64_t begin = 0; begin < a.count; begin += kNormChunk) {
    const int64_t rest = a.count - begin;
    const int count = rest < kNormChunk ? static_cast<int>(rest) : kNormChunk;
    for (int k = threadIdx.x; k < count; k += blockDim.x) near[k] = a.sums[begin + k];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int k = 0; k < count; ++k) total += near[k];
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  StepNumbers& numbers = *a.numbers;
  numbers.norm = numbers.mean_scale * arithmetic::square_root(total);
  numbers.grad_scale = numbers.mean_scale;
  if (a.limit > 0)
    numbers.grad_scale *= arithmetic::clip_factor(numbers.norm, a.limit, kClipEps);
  if (!(numbers.norm - numbers.norm == 0)) numbers.not_finite = 1;
}

// The totals of tensors from the sums of their chunks, a block for each. A node of the
// tree is added alone, so the tree is cut at its nodes: into as many as the block has
// threads, then into their roots, then those.
__device__ inline void add_chunks(const TreeArguments& a) {
  constexpr int kRoots = 16;
  __shared__ double nodes[kThreads], roots[kRoots];
  for (int64_t t = blockIdx.x; t < a.num_tensors * a.width; t += gridDim.x) {
    const TensorChunks tensor = a.tensors[t / a.width];
    const double* const sums = a.sums + tensor.first * a.width + t % a.width;
    int64_t each = 1;
    while (each * kThreads < tensor.count) each *= 2;
    const auto part = [](int64_t count, int64_t at, int64_t most) {
      const int64_t rest = count - at;
      return rest < 0 ? 0 : rest < most ? rest : most;
    };
    const int64_t num_nodes = (tensor.count + each - 1) / each;
    for (int n = threadIdx.x; n < num_nodes; n += blockDim.x)
      nodes[n] = arithmetic::tree_sum(sums + n * each * a.width,
                                      part(tensor.count, n * each, each), a.width);
    __syncthreads();
    const int64_t num_roots = (num_nodes + kRoots - 1) / kRoots;
    for (int n = threadIdx.x; n < num_roots; n += blockDim.x)
      roots[n] = arithmetic::tree_sum(nodes + n * kRoots,
                                      part(num_nodes, n * kRoots, kRoots), 1);
    __syncthreads();
    if (threadIdx.x == 0) a.totals[t] = arithmetic::tree_sum(roots, num_roots, 1);
    __syncthreads();
  }
}

// Modulo 2^64, so that the order does not matter.
template <typename Bits>
__device__ inline void sum_elements(const ElementArguments& a) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  const Bits* const data = static_cast<const Bits*>(a.data);
  unsigned long long sum = 0;
  for (int64_t i = thread_of_grid(); i < a.count; i += threads_of_grid())
    sum += element_term(a.key + a.step * static_cast<uint64_t>(i), data[i]);
  atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(a.sum), total);
}

}  // namespace cohort::kernels
