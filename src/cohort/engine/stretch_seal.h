// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "cohort/tensor.h"

namespace cohort {

// Hashes of a flat buffer, one for each stretch of each shard of it, so that a
// reader of a stretch, on this rank or on another, finds what its writer left there. A
// seal of nothing costs nothing and always holds.
//
// Positions and counts are of elements: a stretch begins at a multiple of kStretch of
// its shard and goes on for kStretch elements, or to the shard's end.
class StretchSeal {
 public:
  StretchSeal() = default;
  // `hashes`: table_size() int64, kept as long as the buffer.
  StretchSeal(Tensor buffer, Tensor hashes);

  // How many hashes a buffer of that many shards has.
  static int64_t table_size(int64_t shard, int64_t shards);
  static uint64_t hash_of(const void* stretch, int64_t bytes);

  // What is there now is what shall be there.
  void close(int64_t shard, int64_t begin, int64_t count);
  // The same, where the hash is known.
  void close_as(int64_t shard, int64_t begin, uint64_t hash);
  bool holds(int64_t shard, int64_t begin, int64_t count) const;

  // The same for every stretch of the first `shards` shards.
  void close_all(int64_t shard, int64_t shards);
  bool all_hold(int64_t shard, int64_t shards) const;

 private:
  std::string_view bytes(int64_t begin, int64_t count) const;
  int64_t& hash_at(int64_t shard, int64_t begin) const;

  Tensor buffer_;
  Tensor hashes_;
};

}  // namespace cohort
