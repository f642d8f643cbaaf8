// SPDX-License-Identifier: Apache-2.0
#pragma once

// How kernels read and write memory. Element i of anything is worked on by one thread
// alone, in whatever grid: a grid of one thread does all of them, which is how the host
// tests these texts.

#include "cohort/engine/cuda/kernels/kernel_arguments.h"

namespace cohort::kernels {

struct Bfloat16 {
  unsigned short bits;
};
struct Half {
  unsigned short bits;
};
struct Nothing {};  // the type of what is not written

#ifdef __CUDACC__
__device__ inline float half_as_float(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
__device__ inline int64_t device_time() {
  long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}
__device__ inline unsigned short float_as_half(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(Bfloat16 x) {
  return __uint_as_float(static_cast<unsigned int>(x.bits) << 16);
}
__device__ inline float widened(Half x) { return half_as_float(x.bits); }

// Rounded to the nearest, ties to even.
__device__ inline void put(float& to, float x) { to = x; }
__device__ inline void put(Half& to, float x) { to.bits = float_as_half(x); }
__device__ inline void put(Bfloat16& to, float x) {
  const unsigned int bits = __float_as_uint(x);
  const unsigned int half_way = 0x7fff + ((bits >> 16) & 1);
  to.bits = x != x ? 0x7fc0 : static_cast<unsigned short>((bits + half_way) >> 16);
}

// Elements that are read and written at once.
constexpr int kPack = 4;
template <typename T>
struct alignas(kPack * sizeof(T)) Pack {
  T at[kPack];
};

template <typename T>
__device__ inline bool packs(const T* memory) {
  return reinterpret_cast<unsigned long long>(memory) % sizeof(Pack<T>) == 0;
}

template <typename T>
__device__ inline Pack<T> load_pack(const T* memory) {
  return *reinterpret_cast<const Pack<T>*>(memory);
}

template <typename T>
__device__ inline Pack<float> load_wide(const T* memory) {
  const Pack<T> narrow = load_pack(memory);
  Pack<float> wide;
  for (int k = 0; k < kPack; ++k) wide.at[k] = widened(narrow.at[k]);
  return wide;
}

template <typename T>
__device__ inline void store_pack(T* memory, const Pack<float>& wide) {
  Pack<T> narrow;
  for (int k = 0; k < kPack; ++k) put(narrow.at[k], wide.at[k]);
  *reinterpret_cast<Pack<T>*>(memory) = narrow;
}

__device__ inline int64_t thread_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t threads_of_grid() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Elements [0, count), shared out over `step` threads, of which this is number `first`:
// by_pack(i) for i to i + kPack - 1 where memory allows it, by_element(i) for others.
template <typename ByPack, typename ByElement>
__device__ inline void for_elements(int64_t count, bool packed, int64_t first,
                                    int64_t step, const ByPack& by_pack,
                                    const ByElement& by_element) {
  const int64_t num_packs = packed ? count / kPack : 0;
  for (int64_t i = first; i < num_packs; i += step) by_pack(i * kPack);
  for (int64_t i = num_packs * kPack + first; i < count; i += step) by_element(i);
}

}  // namespace cohort::kernels
