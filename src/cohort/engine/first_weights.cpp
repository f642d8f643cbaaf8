// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/first_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/engine/agreement.h"
#include "cohort/engine/flat_state.h"
#include "cohort/nn/first_value.h"

namespace cohort {
namespace {

// Elements on their way to another dtype or device.
constexpr int64_t kNarrowedAtOnce = 1 << 16;

// Covers all parameters; 0 if one has no such value.
uint64_t first_values_hash(const std::vector<FlatParameter>& places) {
  Hasher hasher;
  for (const auto& place : places) {
    const FirstValue* const value = first_value_of(place.parameter);
    if (!value) return 0;
    hasher.add(place.name)
        .add(static_cast<int64_t>(value->key.seed))
        .add(static_cast<int64_t>(value->key.stream))
        .add(std::bit_cast<int64_t>(value->low))
        .add(std::bit_cast<int64_t>(value->high))
        .add(std::bit_cast<int64_t>(value->deviation));
  }
  return hasher.digest() | 1;
}

}  // namespace

FirstWeights::FirstWeights(const std::vector<FlatParameter>& places,
                           const RankGroups& groups, bool takes_over)
    : places_(places),
      alike_(*groups.alike),
      source_(takes_over ? Source::kNobody : source_of(places, *groups.world)) {}

// All ranks must come to the same answer, though their chains may differ: a rank that
// was in a world before has no FirstValue any more.
FirstWeights::Source FirstWeights::source_of(const std::vector<FlatParameter>& places,
                                             Communicator& world) {
  const auto hashes = gather_numbers(world, first_values_hash(places));
  const bool equal = std::ranges::all_of(
      hashes, [&](uint64_t hash) { return hash != 0 && hash == hashes[0]; });
  return equal ? Source::kFirstValues : Source::kFirstRank;
}

void FirstWeights::turn_to(int bucket, int64_t numel, const Tensor& room) {
  bucket_ = bucket;
  whole_ = Tensor();
  if (source_ != Source::kFirstRank) return;
  whole_ = room.defined() ? room : at::zeros({numel}, at::kFloat);
  for (const auto& place : places_) {
    if (place.bucket != bucket || alike_.rank() != 0) continue;
    const Tensor part = FlatState::view(whole_, place);
    if (const FirstValue* const value = first_value_of(place.parameter)) {
      make_piece(*value, place.tensor, whole_.narrow(0, place.offset, place.held()));
      continue;
    }
    if (!place.parameter.has_storage() || !place.parameter.storage().data())
      throw CommError(text("[engine] ", place.name,
                           " went with the world it was cut over; legal: a new chain"));
    part.copy_(place.parameter);
  }
  alike_.broadcast(whole_, 0).wait();
}

void FirstWeights::read(int64_t begin, const Tensor& out) const {
  if (source_ == Source::kFirstRank) {
    const Tensor part = whole_.narrow(0, begin, out.numel());
    if (part.data_ptr() != out.data_ptr()) out.copy_(part);
    return;
  }
  if (out.scalar_type() == at::kFloat && out.is_cpu()) return make(begin, out);
  for (int64_t at = 0; at < out.numel(); at += kNarrowedAtOnce) {
    const int64_t count = std::min(kNarrowedAtOnce, out.numel() - at);
    const Tensor wide = at::empty({count}, at::kFloat);
    make(begin + at, wide);
    out.narrow(0, at, count).copy_(wide);
  }
}

void FirstWeights::make(int64_t begin, const Tensor& out) const {
  out.zero_();
  if (source_ == Source::kNobody) return;
  const int64_t end = begin + out.numel();
  for (const auto& place : places_) {
    if (place.bucket != bucket_) continue;
    const int64_t from = std::max(begin, place.offset);
    const int64_t to = std::min(end, place.offset + place.held());
    if (from >= to) continue;
    StateTensor piece = place.tensor;
    piece.spec.begin = from - place.offset;
    piece.spec.end = to - place.offset;
    make_piece(*first_value_of(place.parameter), piece,
               out.narrow(0, from - begin, to - from));
  }
}

}  // namespace cohort
