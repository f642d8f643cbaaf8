// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace cohort {

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
