// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/event_file.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

void append_number(std::string& out, const auto& number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A record with checksums that are right.
std::string sealed(std::string_view data) {
  std::string record;
  append_number(record, static_cast<uint64_t>(data.size()));
  append_number(record, masked_crc32c(record));
  record += data;
  append_number(record, masked_crc32c(data));
  return record;
}

void read_all(std::string_view bytes) {
  allow<DataError>([&] {
    const auto log = decode_events(bytes, "events");
    std::string once;
    for (const auto& event : log.events) once += encode_event(event);
    std::string twice;
    for (const auto& event : decode_events(once, "events").events)
      twice += encode_event(event);
    demand(once == twice, "an event that does not come back");
  });
}

}  // namespace
}  // namespace cohort::fuzz

COHORT_FUZZ_TARGET(events) {
  read_all(bytes);
  read_all(sealed(bytes));
}
