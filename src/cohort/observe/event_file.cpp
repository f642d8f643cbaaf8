// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <system_error>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/process.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little);

// Field numbers of tensorflow.Event, Summary and Summary.Value.
enum : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kValue = 1,
  kTag = 1,
  kSimpleValue = 2,
};

constexpr size_t kHeaderBytes = 12;  // length and its checksum
constexpr size_t kFlushBytes = 1 << 16;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}

double seconds_now() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <typename T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T read_raw(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

[[noreturn]] void fail_events(const char* what, const std::filesystem::path& path,
                              int code) {
  throw DataError(text("[observe.events] cannot ", what, " ", path.string(), ": ",
                       std::generic_category().message(code)));
}

Scalar decode_value(protozero::pbf_reader value) {
  Scalar scalar;
  while (value.next()) {
    if (value.tag_and_type() ==
        protozero::tag_and_type(kTag, protozero::pbf_wire_type::length_delimited)) {
      scalar.tag = value.get_string();
    } else if (value.tag_and_type() ==
               protozero::tag_and_type(kSimpleValue,
                                       protozero::pbf_wire_type::fixed32)) {
      scalar.value = value.get_float();
    } else {
      value.skip();
    }
  }
  return scalar;
}

Event decode_event(std::string_view data) {
  Event event;
  protozero::pbf_reader reader(data.data(), data.size());
  while (reader.next()) {
    switch (reader.tag()) {
      case kWallTime:
        event.wall_time = reader.get_double();
        break;
      case kStep:
        event.step = reader.get_int64();
        break;
      case kFileVersion:
        event.file_version = reader.get_string();
        break;
      case kSummary: {
        auto summary = reader.get_message();
        while (summary.next(kValue)) {
          event.scalars.push_back(decode_value(summary.get_message()));
        }
        break;
      }
      default:
        reader.skip();
    }
  }
  return event;
}

// A new file that no other writer has; n counts up past those of our own process.
int create_event_file(const std::filesystem::path& folder,
                      std::filesystem::path& path) {
  const std::string host = host_name();
  const auto second = static_cast<int64_t>(seconds_now());
  for (int n = 0; n < 10000; ++n) {
    path = folder /
           text("events.out.tfevents.", second, ".", host, ".", ::getpid(), ".", n);
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  fail_events("make", path, errno);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  }
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string encode_event(const Event& event) {
  std::string data;
  protozero::pbf_writer writer(data);
  writer.add_double(kWallTime, event.wall_time);
  if (event.step != 0) writer.add_int64(kStep, event.step);
  if (!event.file_version.empty()) writer.add_string(kFileVersion, event.file_version);
  if (!event.scalars.empty()) {
    protozero::pbf_writer summary(writer, kSummary);
    for (const Scalar& scalar : event.scalars) {
      protozero::pbf_writer value(summary, kValue);
      value.add_string(kTag, scalar.tag);
      value.add_float(kSimpleValue, scalar.value);
    }
  }

  std::string record;
  append_raw(record, static_cast<uint64_t>(data.size()));
  append_raw(record, masked_crc32c(record));
  record += data;
  append_raw(record, masked_crc32c(data));
  return record;
}

EventLog decode_events(std::string_view bytes, const std::string& name) {
  EventLog log;
  const auto damaged = [&](size_t at) {
    throw DataError(text("[observe.events] ", name, ": damaged record at byte ", at));
  };
  for (size_t at = 0; at < bytes.size();) {
    const auto rest = bytes.substr(at);
    log.truncated = rest.size() < kHeaderBytes;
    if (log.truncated) break;
    if (masked_crc32c(rest.substr(0, 8)) != read_raw<uint32_t>(rest, 8)) damaged(at);
    const auto size = read_raw<uint64_t>(rest, 0);
    log.truncated =
        rest.size() - kHeaderBytes < 4 || size > rest.size() - kHeaderBytes - 4;
    if (log.truncated) break;
    const auto data = rest.substr(kHeaderBytes, size);
    if (masked_crc32c(data) != read_raw<uint32_t>(rest, kHeaderBytes + size)) {
      damaged(at);
    }
    try {
      log.events.push_back(decode_event(data));
    } catch (const protozero::exception&) {
      damaged(at);
    }
    at += kHeaderBytes + size + 4;
  }
  return log;
}

EventFile::EventFile(const std::filesystem::path& folder, Backlog* backlog) {
  make_folder(folder);
  UniqueFd fd(create_event_file(folder, path_));
  file_ = PatientFile(std::move(fd), path_, backlog);
  add({.wall_time = seconds_now(), .file_version = "brain.Event:2", .scalars = {}});
  flush();
}

EventFile::~EventFile() {
  if (pending_.empty()) return;
  try {
    flush();
  } catch (const DataError&) {
    // Nobody is left to tell; whoever must know calls flush().
  }
}

void EventFile::add(int64_t step, std::string_view tag, float value) {
  const Scalar scalar{std::string(tag), value};
  add(step, std::span(&scalar, 1));
}

void EventFile::add(int64_t step, std::span<const Scalar> scalars) {
  add({.wall_time = seconds_now(),
       .step = step,
       .file_version = "",
       .scalars = {scalars.begin(), scalars.end()}});
}

void EventFile::add(const Event& event) {
  if (!file_.has_room()) return;
  pending_ += encode_event(event);
  if (pending_.size() >= kFlushBytes) flush();
}

void EventFile::flush() {
  const std::string bytes = std::exchange(pending_, {});
  file_.append(bytes);
}

}  // namespace cohort
