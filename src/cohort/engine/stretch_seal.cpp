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
bool for_each_stretch(int64_t share, int64_t shares, const Use& use) {
  for (int64_t s = 0; s < shares; ++s)
    for (int64_t at = 0; at < share; at += kStretch)
      if (!use(s * share + at, std::min(kStretch, share - at))) return false;
  return true;
}

}  // namespace

StretchSeal::StretchSeal(Tensor buffer, Tensor hashes)
    : buffer_(std::move(buffer)), hashes_(std::move(hashes)) {}

int64_t StretchSeal::table_size(int64_t share, int64_t shares) {
  return shares * ((share + kStretch - 1) / kStretch);
}

uint64_t StretchSeal::hash_of(const void* stretch, int64_t bytes) {
  return hash64({static_cast<const char*>(stretch), static_cast<size_t>(bytes)});
}

std::string_view StretchSeal::bytes(int64_t begin, int64_t count) const {
  const auto width = static_cast<int64_t>(buffer_.element_size());
  return {static_cast<const char*>(buffer_.const_data_ptr()) + begin * width,
          static_cast<size_t>(count * width)};
}

int64_t& StretchSeal::hash_at(int64_t share, int64_t begin) const {
  const int64_t index = table_size(share, begin / share) + begin % share / kStretch;
  return hashes_.data_ptr<int64_t>()[index];
}

void StretchSeal::close(int64_t share, int64_t begin, int64_t count) {
  if (hashes_.defined()) close_as(share, begin, hash64(bytes(begin, count)));
}

void StretchSeal::close_as(int64_t share, int64_t begin, uint64_t hash) {
  if (hashes_.defined()) hash_at(share, begin) = static_cast<int64_t>(hash);
}

bool StretchSeal::holds(int64_t share, int64_t begin, int64_t count) const {
  return !hashes_.defined() ||
         static_cast<uint64_t>(hash_at(share, begin)) == hash64(bytes(begin, count));
}

void StretchSeal::close_all(int64_t share, int64_t shares) {
  if (!hashes_.defined()) return;
  for_each_stretch(share, shares, [&](int64_t begin, int64_t count) {
    close(share, begin, count);
    return true;
  });
}

bool StretchSeal::all_hold(int64_t share, int64_t shares) const {
  return !hashes_.defined() ||
         for_each_stretch(share, shares, [&](int64_t begin, int64_t count) {
           return holds(share, begin, count);
         });
}

}  // namespace cohort
