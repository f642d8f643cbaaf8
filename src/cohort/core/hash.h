// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace cohort {

// XXH3-64 of some bytes, as `xxhsum -H3` gives it.
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);

// 16 lower-case hexadecimal digits, the form of every hash a user sees.
std::string hex16(uint64_t hash);

// XXH3-64 over a stream. The order and the bytes matter, the cuts do not:
// update("ab"), update("c") hashes "abc".
class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0);
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  Hasher& update(const void* data, size_t bytes);
  Hasher& update(std::string_view bytes) { return update(bytes.data(), bytes.size()); }

  // Fields of a record: each carries its length, so that ("ab", "c") and
  // ("a", "bc") differ. Use these for fingerprints.
  Hasher& add(std::string_view field);
  Hasher& add(const char* field) { return add(std::string_view(field)); }
  Hasher& add(int64_t value);

  // The hash so far; more may follow.
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The hash of a record of fields: fingerprint("all_reduce", 4096, "float32").
template <typename... Fields>
uint64_t fingerprint(const Fields&... fields) {
  Hasher hasher;
  (hasher.add(fields), ...);
  return hasher.digest();
}

}  // namespace cohort
