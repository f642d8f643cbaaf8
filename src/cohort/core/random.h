// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "cohort/tensor.h"

namespace cohort {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011): four random words, a pure function of counter and key.
using PhiloxBlock = std::array<uint32_t, 4>;
PhiloxBlock philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key);

// Names one stream of random numbers. Element i of a stream depends on the key
// and i alone: not on what was drawn before, where, or how a tensor is cut.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;

  // What happens to one sample in one step: augmentation, dropout.
  static RandomKey of_sample(uint64_t seed, int64_t step, int64_t sample,
                             std::string_view op);
  // A thing that has a path: a parameter's initial value, the n-th call of a block.
  static RandomKey of_path(uint64_t seed, std::string_view path, int64_t index = 0);

  friend bool operator==(const RandomKey&, const RandomKey&) = default;
};

// Element i of a stream.
uint32_t random_bits(const RandomKey& key, uint64_t i);
// Elements first, first + 1, ...: several times as fast as one at a time.
void random_bits(const RandomKey& key, uint64_t first, std::span<uint32_t> out);
// Elements first to first + count - 1 of several streams of one seed, one row per
// stream, as int64. Made by plain tensor operations, on the device of `streams`
// (int64).
Tensor random_bits(const Tensor& streams, uint64_t seed, int64_t first, int64_t count);
uint64_t random_bits64(const RandomKey& key, uint64_t i);
float uniform_float(const RandomKey& key, uint64_t i);    // [0, 1), 24 bits
double uniform_double(const RandomKey& key, uint64_t i);  // [0, 1), 53 bits
double normal(const RandomKey& key, uint64_t i);          // Box-Muller, mean 0, sd 1
// A whole number in [0, n), n > 0, without bias beyond 2^-64 * n.
uint64_t random_below(const RandomKey& key, uint64_t i, uint64_t n);

// Fill a CPU tensor of any floating dtype and strides, in row-major order, with
// elements first, first + 1, ... of the stream. A shard that starts at element k
// of the whole passes first = k and gets the whole's values.
void fill_uniform(Tensor& tensor, const RandomKey& key, double lo, double hi,
                  int64_t first = 0);
void fill_normal(Tensor& tensor, const RandomKey& key, double mean, double deviation,
                 int64_t first = 0);

}  // namespace cohort
