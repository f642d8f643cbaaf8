// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/stretch_seal.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cohort/core/hash.h"
#include "cohort/engine/sum.h"

namespace cohort {
namespace {

// Calls use(begin, count) for each stretch until one answers false.
template <typename Use>
bool for_each_stretch(int64_t shard, int64_t shards, const Use& use) {
  for (int64_t s = 0; s < shards; ++s)
    for (int64_t at = 0; at < shard; at += kStretch)
      if (!use(s * shard + at, std::min(kStretch, shard - at))) return false;
  return true;
}

}  // namespace

StretchSeal::StretchSeal(Tensor buffer, Tensor hashes)
    : buffer_(std::move(buffer)), hashes_(std::move(hashes)) {}

int64_t StretchSeal::table_size(int64_t shard, int64_t shards) {
  return shards * ((shard + kStretch - 1) / kStretch);
}

uint64_t StretchSeal::hash_of(const void* stretch, int64_t bytes) {
  return hash64({static_cast<const char*>(stretch), static_cast<size_t>(bytes)});
}

std::string_view StretchSeal::bytes(int64_t begin, int64_t count) const {
  const auto width = static_cast<int64_t>(buffer_.element_size());
  return {static_cast<const char*>(buffer_.const_data_ptr()) + begin * width,
          static_cast<size_t>(count * width)};
}

int64_t& StretchSeal::hash_at(int64_t shard, int64_t begin) const {
  const int64_t index = table_size(shard, begin / shard) + begin % shard / kStretch;
  return hashes_.data_ptr<int64_t>()[index];
}

void StretchSeal::close(int64_t shard, int64_t begin, int64_t count) {
  if (hashes_.defined()) close_as(shard, begin, hash64(bytes(begin, count)));
}

void StretchSeal::close_as(int64_t shard, int64_t begin, uint64_t hash) {
  if (hashes_.defined()) hash_at(shard, begin) = static_cast<int64_t>(hash);
}

bool StretchSeal::holds(int64_t shard, int64_t begin, int64_t count) const {
  return !hashes_.defined() ||
         static_cast<uint64_t>(hash_at(shard, begin)) == hash64(bytes(begin, count));
}

void StretchSeal::close_all(int64_t shard, int64_t shards) {
  if (!hashes_.defined()) return;
  for_each_stretch(shard, shards, [&](int64_t begin, int64_t count) {
    close(shard, begin, count);
    return true;
  });
}

bool StretchSeal::all_hold(int64_t shard, int64_t shards) const {
  return !hashes_.defined() ||
         for_each_stretch(shard, shards, [&](int64_t begin, int64_t count) {
           return holds(shard, begin, count);
         });
}

}  // namespace cohort
