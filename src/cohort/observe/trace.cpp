// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/trace.h"

#include <algorithm>
#include <limits>

#include "cohort/core/error.h"
#include "cohort/core/json.h"

namespace cohort {
namespace {

// Nanoseconds as microseconds with three decimals, exactly.
RawJson microseconds(int64_t ns) {
  const int64_t size = std::abs(ns);
  std::string decimals = std::to_string(size % 1000);
  decimals.insert(0, 3 - decimals.size(), '0');
  return {text(ns < 0 ? "-" : "", size / 1000, ".", decimals)};
}

int64_t earliest(std::span<const RankSpans> ranks) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& rank : ranks) {
    for (const auto& lane : rank.lanes) {
      for (const auto& span : lane.spans) first = std::min(first, span.start_ns);
    }
  }
  return first == std::numeric_limits<int64_t>::max() ? 0 : first;
}

template <typename T>
std::string metadata(const char* name, int pid, int tid, const char* key,
                     const T& value) {
  return JsonObject()
      .add("ph", "M")
      .add("name", name)
      .add("pid", pid)
      .add("tid", tid)
      .add("args", JsonObject().add(key, value))
      .text();
}

std::string complete(const SpanRecord& span, const std::string& lane, int pid, int tid,
                     int64_t base) {
  JsonObject args;
  if (span.step >= 0) args.add("step", span.step);
  if (span.id >= 0) args.add("id", span.id);
  if (span.bytes >= 0) args.add("bytes", span.bytes);
  return JsonObject()
      .add("ph", "X")
      .add("name", span.name)
      .add("cat", lane)
      .add("pid", pid)
      .add("tid", tid)
      .add("ts", microseconds(span.start_ns - base))
      .add("dur", microseconds(span.duration_ns))
      .add("args", args)
      .text();
}

void append(std::string& events, const std::string& event) {
  events += (events.empty() ? "\n" : ",\n") + event;
}

void append_rank(std::string& events, const RankSpans& rank, int64_t base) {
  const std::string name =
      text("rank ", rank.rank, rank.label.empty() ? "" : " ", rank.label);
  append(events, metadata("process_name", rank.rank, 0, "name", name));
  append(events, metadata("process_sort_index", rank.rank, 0, "sort_index", rank.rank));
  for (size_t i = 0; i < rank.lanes.size(); ++i) {
    const auto& lane = rank.lanes[i];
    const int tid = static_cast<int>(i);
    append(events, metadata("thread_name", rank.rank, tid, "name", lane.lane));
    append(events, metadata("thread_sort_index", rank.rank, tid, "sort_index", tid));
    for (const auto& span : lane.spans) {
      append(events, complete(span, lane.lane, rank.rank, tid, base));
    }
  }
}

}  // namespace

std::string trace_json(std::span<const RankSpans> ranks) {
  const int64_t base = earliest(ranks);
  std::string events;
  for (const auto& rank : ranks) append_rank(events, rank, base);
  return JsonObject()
             .add("schemaVersion", 1)
             .add("displayTimeUnit", "ms")
             .add("baseTimeNanoseconds", base)
             .add("traceEvents", RawJson{text("[", events, "\n]")})
             .text() +
         "\n";
}

}  // namespace cohort
