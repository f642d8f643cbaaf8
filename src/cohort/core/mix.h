// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014; Stafford's variant 13), and the
// step of its state. Formats are made of them: they never change.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}
inline constexpr uint64_t kGolden64 = 0x9e3779b97f4a7c15u;

}  // namespace cohort
