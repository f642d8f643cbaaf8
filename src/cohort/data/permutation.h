// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace cohort {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014; Stafford's variant 13), and the
// step of its state.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}
inline constexpr uint64_t kGolden64 = 0x9e3779b97f4a7c15u;

// A keyed permutation of [0, size): each (seed, epoch) has its own, and any place
// of it is found in constant time and memory. It is a Feistel network over the next
// even number of bits; results outside the range are put through it again until they
// fall inside (cycle walking).
//
// The values are a format: a run's position means nothing without them. They never
// change; permutation_test.cpp holds known answers.
//
// Thread safety: immutable.
class Permutation {
 public:
  Permutation(uint64_t seed, int64_t epoch, int64_t size);

  int64_t size() const { return size_; }

  // The sample at place `k`, 0 <= k < size.
  int64_t operator()(int64_t k) const;

 private:
  static constexpr int kRounds = 8;

  int64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace cohort
