// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/permutation.h"

#include <bit>

#include "cohort/core/error.h"
#include "cohort/core/mix.h"

namespace cohort {
namespace {

// Fewer bits would leave a tiny set few permutations to choose from (with one bit per
// half there are only four round functions); walking over 256 places costs little.
constexpr int kMinHalfBits = 4;

int half_bits(int64_t size) {
  const int bits = size <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(size - 1));
  const int half = (bits + 1) / 2;
  return half < kMinHalfBits ? kMinHalfBits : half;
}

}  // namespace

Permutation::Permutation(uint64_t seed, int64_t epoch, int64_t size)
    : size_(size), half_bits_(half_bits(size)) {
  COHORT_CHECK(size >= 0, "size ", size);
  COHORT_CHECK(epoch >= 0, "epoch ", epoch);
  // The seed is mixed before the epoch comes in, so that (seed, epoch + 1) and
  // (seed + 1, epoch) have nothing in common.
  uint64_t state = mix64(mix64(seed + kGolden64) + static_cast<uint64_t>(epoch));
  for (auto& key : keys_) {
    state += kGolden64;
    key = mix64(state);
  }
}

int64_t Permutation::operator()(int64_t k) const {
  COHORT_CHECK(k >= 0 && k < size_, "place ", k, " of ", size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<uint64_t>(k);
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix64(right + key) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(x);
}

}  // namespace cohort
