// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/span.h"

#include <algorithm>

namespace cohort {

void SpanLane::add(const SpanRecord& record) {
  const std::lock_guard lock(mutex_);
  if (ring_.size() < capacity_) {
    ring_.push_back(record);
  } else if (capacity_ > 0) {
    ring_[static_cast<size_t>(added_) % capacity_] = record;
  }
  ++added_;
}

std::vector<SpanRecord> SpanLane::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<SpanRecord> spans = ring_;
  if (!spans.empty() && static_cast<size_t>(added_) > spans.size()) {
    const size_t oldest = static_cast<size_t>(added_) % spans.size();
    std::rotate(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(oldest),
                spans.end());
  }
  return spans;
}

int64_t SpanLane::dropped() const {
  const std::lock_guard lock(mutex_);
  return added_ - static_cast<int64_t>(ring_.size());
}

void SpanLane::clear() {
  const std::lock_guard lock(mutex_);
  ring_.clear();
  added_ = 0;
}

SpanLane& SpanRecorder::lane(std::string_view name) {
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) {
    if (lane->name() == name) return *lane;
  }
  lanes_.push_back(
      std::make_unique<SpanLane>(std::string(name), capacity_, enabled_, clock_));
  return *lanes_.back();
}

const char* SpanRecorder::intern(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto same = std::ranges::find(names_, name);
  if (same != names_.end()) return same->c_str();
  return names_.emplace_back(name).c_str();
}

std::vector<LaneSpans> SpanRecorder::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<LaneSpans> all;
  for (const auto& lane : lanes_) all.push_back({lane->name(), lane->snapshot()});
  return all;
}

void SpanRecorder::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) lane->clear();
}

}  // namespace cohort
