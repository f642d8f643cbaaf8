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
  int parts = 1;  // ranks a bucket is cut for
};

// Blocks from last to first, as backward reaches them. A parameter that several blocks
// share lies with the first of them; frozen ones lie in buckets of their own.
std::vector<Bucket> make_buckets(std::span<const BlockSpec> blocks,
                                 const BucketOptions& options);

// The buckets each block's parameters lie in, shared ones too.
std::vector<std::vector<int>> bucket_uses(std::span<const BlockSpec> blocks,
                                          std::span<const Bucket> buckets);

// Gives each trained bucket a slot, and returns how many there are. A slot is used
// again only when two reductions were started after its own, so that they may overlap.
int assign_slots(std::span<const std::vector<int>> uses, std::vector<Bucket>& buckets);

// The block whose backward is the last to add to each bucket's gradient.
std::vector<int> last_to_add(std::span<const std::vector<int>> uses, size_t buckets);

// Bytes of the state of a bucket that a rank holds between steps.
int64_t state_bytes(const Schedule& schedule, const Bucket& bucket,
                    int optimizer_states);

// Bytes of the second copy, where there is one: masters (those that lie among whole
// float32 parameters take nothing), optimizer state, and the sum that updates them.
int64_t mirror_bytes(const Schedule& schedule, const Bucket& bucket,
                     int optimizer_states);

// In which shares of the summed gradient are kept.
at::ScalarType sum_type(const Schedule& schedule);

// Bytes of the memory that a gathered bucket gets: any piece may serve any bucket, so
// each fits the largest.
int64_t gathered_bytes(const Schedule& schedule, int bucket);

// Bytes of the memory in which gradients of a whole bucket are born and added up. From
// level 2 on they take turns in pieces of it, each fit for the largest.
int64_t gradient_bytes(const Schedule& schedule, const Bucket& bucket);

}  // namespace cohort
