// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

struct CheckOptions {
  int64_t memory_limit = 0;  // bytes a rank may hold; 0: any
  // No update without a Vote, and behind it nothing that a commit needs of others. Also
  // where the schedule says so itself.
  bool elastic = false;
  // A rank begins an exchange, or a call inside a block, when the one before it in its
  // list is done: kernels of a device that wait for their peers may leave no room for
  // others.
  bool one_exchange_at_a_time = false;
};

// What a rank holds at once, by what it is for.
struct MemoryParts {
  int64_t state = 0;  // between steps: parameters, optimizer state, gradient sums
  int64_t activations = 0;
  int64_t gradients = 0;   // that take turns in memory kept for them
  int64_t parameters = 0;  // gathered, in memory kept for them
  int64_t scratch = 0;

  int64_t total() const {
    return state + activations + gradients + parameters + scratch;
  }
};

struct RolePeak {
  int action = 0;  // at whose beginning a rank of the role holds most
  MemoryParts parts;
  int64_t on_device = 0;  // part of these; the rest is the host's

  int64_t on_host() const { return parts.total() - on_device; }
};

struct MovedBytes {
  double sent = 0, received = 0;

  bool operator==(const MovedBytes&) const = default;
};

// What each rank of a role exchanges with others in a step. Collectives count as a ring
// makes them: 2 (n - 1) / n of its bytes for a sum everywhere, (n - 1) / n for a gather
// or a reduction to shards. Norm and FoldBuffers declare no bytes and count as nothing.
struct RoleVolume {
  MovedBytes groups;  // collectives between blocks: gradients, parameters, loss, vote
  MovedBytes blocks;  // collectives inside blocks
  MovedBytes links;   // along the pipeline

  MovedBytes total() const {
    return {groups.sent + blocks.sent + links.sent,
            groups.received + blocks.received + links.received};
  }
};

struct CheckReport {
  std::vector<RolePeak> roles;      // in the order of the schedule
  std::vector<RoleVolume> volumes;  // in the same order

  const RolePeak& largest() const;
};

// Proves a step before it runs, by what its actions declare to read and write: rules R1
// to R13 of decision 0026. Names and the list of buckets are not asked, so a schedule
// that came from a file is judged the same.
//
// ConfigError in one line with rule, role, action and value when one is broken:
// - an action waits for earlier ones only; each kind keeps to its lane;
// - every slice passes every block forward and backward once, in order;
// - parameters are whole when used and cut or updated as the role says;
// - each gradient is reduced exactly once, over all ranks, before its update; and
//   mirrored once in between, if any is;
// - loss, Norm, Vote and the rest of what Commit needs happen once, and in time;
// - a value is read after it was written, and its memory is written again only when
//   nobody reads it any more;
// - ranks of a group call equal collectives in equal order, and nobody waits for ever;
// - what is taken is given back, and never more than the limit.
// "Before" always means: in the same lane, or by waits; never by place in the list
// alone.
CheckReport check(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace cohort
