// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/clock.h"

namespace cohort {

// Something that took time. `name` is a literal or comes from
// SpanRecorder::intern(); -1 means that a field does not apply.
struct SpanRecord {
  const char* name = "";
  int64_t start_ns = 0;  // of the recorder's clock
  int64_t duration_ns = 0;
  int64_t step = -1;
  int64_t id = -1;  // of the action, bucket, block, ...
  int64_t bytes = -1;
};

// The newest spans of one lane (compute, a group, the loader) in a ring. Usually one
// thread adds; the lock is for whoever takes a snapshot meanwhile.
class SpanLane {
 public:
  SpanLane(std::string name, size_t capacity, const std::atomic<bool>& enabled,
           const Clock& clock)
      : name_(std::move(name)), capacity_(capacity), enabled_(enabled), clock_(clock) {}

  const std::string& name() const { return name_; }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  int64_t now_ns() const { return clock_.now().time_since_epoch().count(); }

  void add(const SpanRecord& record);
  std::vector<SpanRecord> snapshot() const;  // oldest first
  int64_t dropped() const;                   // overwritten, since the last clear()
  void clear();

 private:
  std::string name_;
  size_t capacity_;
  const std::atomic<bool>& enabled_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<SpanRecord> ring_;
  int64_t added_ = 0;
};

struct LaneSpans {
  std::string lane;
  std::vector<SpanRecord> spans;
};

// All lanes of a rank. Off until enabled; a Span then costs one load. Lanes live as
// long as the recorder. Any thread may call.
class SpanRecorder {
 public:
  explicit SpanRecorder(const Clock& clock, size_t capacity = 1 << 16)
      : clock_(clock), capacity_(capacity) {}

  void enable() { enabled_ = true; }
  void disable() { enabled_ = false; }
  bool enabled() const { return enabled_; }

  // The lane of that name, made at the first call. Keep the reference.
  SpanLane& lane(std::string_view name);
  // A copy of `name` that lives as long as the recorder.
  const char* intern(std::string_view name);

  std::vector<LaneSpans> snapshot() const;  // lanes in the order they were made
  void clear();

 private:
  const Clock& clock_;
  size_t capacity_;
  std::atomic<bool> enabled_{false};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SpanLane>> lanes_;
  std::deque<std::string> names_;
};

// Records from here to the end of the scope:
//   Span span(lane, {.name = "forward", .step = step});
class Span {
 public:
  Span(SpanLane& lane, const SpanRecord& record) : record_(record) {
    if (!lane.enabled()) return;
    lane_ = &lane;
    record_.start_ns = lane.now_ns();
  }
  ~Span() {
    if (!lane_) return;
    record_.duration_ns = lane_->now_ns() - record_.start_ns;
    lane_->add(record_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_bytes(int64_t bytes) { record_.bytes = bytes; }

 private:
  SpanLane* lane_ = nullptr;
  SpanRecord record_;
};

}  // namespace cohort
