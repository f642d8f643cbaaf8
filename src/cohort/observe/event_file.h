// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/patient_file.h"

namespace cohort {

struct Scalar {
  std::string tag;
  float value = 0;
};

// One record of an event file: the version, first, or some scalars of a step.
struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string file_version;
  std::vector<Scalar> scalars;
};

// Writes scalars as TensorBoard reads them, into a new file
// events.out.tfevents.<seconds>.<host>.<pid>.<n> of `folder`, which is made.
//
// Failure: DataError with the path. What was flushed survives a crash of the
// process; a record cut short at the end is skipped by readers. With a backlog a full
// disk is no failure: records wait for room.
// Thread safety: none.
class EventFile {
 public:
  explicit EventFile(const std::filesystem::path& folder, Backlog* backlog = nullptr);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void add(int64_t step, std::string_view tag, float value);
  void add(int64_t step, std::span<const Scalar> scalars);
  // At the wall time given, for logs that are written later than they happened.
  void add(const Event& event);
  void flush();

 private:
  std::filesystem::path path_;
  PatientFile file_;
  std::string pending_;
};

struct EventLog {
  std::vector<Event> events;
  bool truncated = false;  // the last record is cut short, as after a crash
};

// Reads the bytes of such a file; what is not a scalar is left out. DataError with the
// offset where a checksum does not fit; `name` is for messages.
EventLog decode_events(std::string_view bytes, const std::string& name);

// One event as its bytes in a file: length, checksum, protobuf, checksum.
std::string encode_event(const Event& event);

// CRC-32C (Castagnoli), and as TensorFlow masks it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace cohort
