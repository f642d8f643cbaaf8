// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

struct BucketOptions {
  int64_t limit_bytes = 0;
  bool one_a_block = false;
  int parts = 1;                       // ranks a bucket is cut for
  std::span<const Stage> stages = {};  // no bucket is of two of them
};

// Blocks from last to first, as backward reaches them. Frozen parameters lie in buckets
// of their own, and so do those that the same several blocks use: tied ones.
std::vector<Bucket> make_buckets(std::span<const BlockSpec> blocks,
                                 const BucketOptions& options);

// The buckets each block's parameters lie in, shared ones too.
std::vector<std::vector<int>> bucket_uses(std::span<const BlockSpec> blocks,
                                          std::span<const Bucket> buckets);

// Whether several blocks use its parameters. Bucket::blocks are these then, the first
// one first, and its gradients add up along the pipeline, too.
bool is_tied(const Bucket& bucket);

// The blocks at that place that use a bucket's parameters, first to last.
std::vector<int> uses_at(const Schedule& schedule, int bucket, int place);
bool is_at(const Schedule& schedule, int bucket, int place);

// Places along the pipeline that have a tied bucket's state, each all of it. Several of
// them are copies of one another already: nobody mirrors them.
std::vector<int> places_of(const Schedule& schedule, const Bucket& bucket);
bool is_mirrored(const Schedule& schedule, int bucket);

// Gradients of a tied bucket that a place keeps apart. An exact step adds up the slices
// of each use first, and then uses, in the order of blocks: so it makes no difference
// where they are computed.
int gradients_at(const Schedule& schedule, int bucket, int place);
int most_gradients(const Schedule& schedule, int bucket);  // at any place

// The block of a place whose backward is the last to add to each bucket's gradient.
std::vector<int> last_to_add(const Schedule& schedule,
                             std::span<const std::vector<int>> uses, int place);

}  // namespace cohort
