// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cohort {

struct Hasher::State {
  XXH3_state_t xxh;
};

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string hex16(uint64_t hash) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

Hasher::Hasher(uint64_t seed) : state_(std::make_unique<State>()) {
  XXH3_64bits_reset_withSeed(&state_->xxh, seed);
}

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

Hasher& Hasher::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(&state_->xxh, data, bytes);
  return *this;
}

Hasher& Hasher::add(std::string_view field) {
  const uint64_t size = field.size();
  return update(&size, sizeof(size)).update(field);
}

Hasher& Hasher::add(int64_t value) { return update(&value, sizeof(value)); }

uint64_t Hasher::digest() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace cohort
