// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cohort/data/token_sets.h"

namespace cohort {

// A long row of tokens, cut into passages that begin `stride` tokens apart and have
// `length` of them each. A passage lies within one file. Thread safety: immutable.
class TokenPassages {
 public:
  virtual ~TokenPassages() = default;
  TokenPassages(const TokenPassages&) = delete;
  TokenPassages& operator=(const TokenPassages&) = delete;

  virtual int64_t count() const = 0;
  // `tokens` has as many places as a passage.
  virtual void read(int64_t passage, std::span<int64_t> tokens) const = 0;
  // "bible-kjv: 3729510 tokens"
  virtual std::string describe() const = 0;

 protected:
  TokenPassages() = default;
};

struct PassageOptions {
  int64_t length = 0;
  int64_t stride = 0;
};

// Files are mapped: nothing is copied but the passages that are read. DataError if
// there is not even one passage.
std::unique_ptr<TokenPassages> map_passages(const std::string& name,
                                            std::span<const TokenStretch> stretches,
                                            const PassageOptions& options);

struct SyntheticTokenOptions {
  int64_t passages = 10'000;
  int64_t length = 0;
  int64_t vocabulary = 0;
  uint64_t seed = 0;
};

// Made-up tokens that need no files. Each follows from the one before, three times out
// of four; passage i depends on seed and i alone.
std::unique_ptr<TokenPassages> synthetic_passages(const SyntheticTokenOptions& options);

}  // namespace cohort
