// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace cohort::gloo_backend {

// Floating numbers as integers of the same order, in place, and back: gloo's own
// maximum of two numbers forgets a NaN. Here one is the largest of all, or the
// smallest.
template <typename Float, typename Integer>
void to_ordered(void* data, int64_t numel, Integer nan) {
  static_assert(sizeof(Float) == sizeof(Integer));
  for (int64_t i = 0; i < numel; ++i) {
    auto* const place = static_cast<std::byte*>(data) + i * sizeof(Float);
    Float number;
    std::memcpy(&number, place, sizeof(Float));
    const auto bits = std::bit_cast<Integer>(number);
    const Integer key = bits < 0 ? bits ^ std::numeric_limits<Integer>::max() : bits;
    const Integer written = number != number ? nan : key;
    std::memcpy(place, &written, sizeof(Integer));
  }
}

template <typename Integer>
void from_ordered(void* data, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    auto* const place = static_cast<std::byte*>(data) + i * sizeof(Integer);
    Integer key;
    std::memcpy(&key, place, sizeof(Integer));
    const Integer bits = key < 0 ? key ^ std::numeric_limits<Integer>::max() : key;
    std::memcpy(place, &bits, sizeof(Integer));
  }
}

}  // namespace cohort::gloo_backend
