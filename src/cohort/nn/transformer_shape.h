// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/layers.h"

namespace cohort {

struct TransformerShape {
  int64_t vocab = 0;
  int64_t context = 0;
  int64_t width = 0;
  int64_t hidden = 0;  // width inside a block's second half
  int64_t depth = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  bool rotary = false;  // heads are turned in pairs of elements
};

// ConfigError for what is no transformer, or cannot be cut in that many parts.
void require_shape(const TransformerShape& shape, const TensorPart& part);

}  // namespace cohort
