// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort {

// Something that took time. `name` is a literal, or outlives the record; -1 means that
// a field does not apply.
struct SpanRecord {
  const char* name = "";
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t step = -1;
  int64_t id = -1;  // number of the action, bucket, block, ...
  int64_t bytes = -1;
};

struct LaneSpans {
  std::string lane;
  std::vector<SpanRecord> spans;
};

}  // namespace cohort
