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
  std::span<const Stage> stages = {};  // no bucket is of two of them
};

// Blocks from last to first, as backward reaches them. A parameter that several blocks
// share lies with the first of them; frozen ones lie in buckets of their own.
std::vector<Bucket> make_buckets(std::span<const BlockSpec> blocks,
                                 const BucketOptions& options);

// The buckets each block's parameters lie in, shared ones too.
std::vector<std::vector<int>> bucket_uses(std::span<const BlockSpec> blocks,
                                          std::span<const Bucket> buckets);

// The block whose backward is the last to add to each bucket's gradient.
std::vector<int> last_to_add(std::span<const std::vector<int>> uses, size_t buckets);

}  // namespace cohort
