// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace cohort {

// What was computed with, in two numbers that ranks can add up: how many samples, and
// the sum, modulo 2^64, of a keyed mix of their ids. A sample that is missing, doubled
// or another changes it; which rank drew it, and in which order, does not.
//
// The values are a format: docs/formats/sample_order.md has the formula, and
// sample_sum_test.cpp known answers.
struct SampleSum {
  uint64_t sum = 0;
  int64_t count = 0;

  SampleSum& operator+=(const SampleSum& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
  bool operator==(const SampleSum&) const = default;
};

// One key per epoch, so that the sums of its steps add up to the sum of all samples.
uint64_t sample_key(uint64_t seed, int64_t epoch);

SampleSum sum_samples(uint64_t key, std::span<const int64_t> ids);

}  // namespace cohort
