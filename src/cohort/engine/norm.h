// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/communicator.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/rank_groups.h"

namespace cohort {

// The ranks that share gradients and state: null where each has all of them. Where
// several have the same, one `counts`. A tensor that is cut is of as many parts.
struct Sharers {
  Communicator* group = nullptr;
  bool counts = true;
  int part = 0, parts = 1;

  bool count(const FlatParameter& place) const {
    return counts && place.is_told_by(part);
  }
};

// `communicate`: else each is alone with what it has.
Sharers sharers_of(const Schedule& schedule, const RankGroups& groups,
                   bool communicate);

// Which chunks of a parameter a shard holds, counted from the parameter's start: all of
// a chunk, or nothing of it (step/generator.h).
struct ChunkRange {
  int64_t begin = 0;
  int64_t end = 0;
};
ChunkRange held_chunks(const FlatParameter& place, const ShardState& shard);
int64_t chunks_of(const FlatParameter& place);  // all of them
// In a table of all ranks' chunks: so many rows has a parameter, and there begin those
// of this rank's part.
int64_t rows_of(const FlatParameter& place, int parts);
int64_t first_row(const FlatParameter& place, int part);

// Fewer are not worth a thread of their own.
inline constexpr int64_t kChunksAtOnce = 64;

// The norm of the summed gradient of all parameters, times `scale`. Squares are added
// up in chunks that belong to one rank and one parameter at every world size and shard
// level; then the chunks, in the order of the model: so the bits are the same however
// the state is cut. Collective over the sharers.
double gradient_norm(const FlatState& state, const GradientSums& gradients,
                     const Sharers& sharers, double scale);

}  // namespace cohort
