// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "cohort/core/hash.h"
#include "cohort/elastic/history_check.h"
#include "cohort/elastic/history_record.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

// The same records with hashes that are right: [kind, length, body]* of the input.
std::string sealed(std::string_view bytes) {
  std::string out(kHistoryMagic);
  uint64_t last = 0;
  while (bytes.size() >= 2) {
    const uint16_t head[] = {static_cast<uint16_t>(bytes[0] & 7),
                             static_cast<uint16_t>(std::min<size_t>(
                                 static_cast<uint8_t>(bytes[1]), bytes.size() - 2))};
    std::string record(reinterpret_cast<const char*>(head), sizeof head);
    const auto guard = static_cast<uint32_t>(hash64(record));
    record.append(reinterpret_cast<const char*>(&guard), sizeof guard);
    record.append(bytes.substr(2, head[1]));
    last = hash64(record, last);
    out += record;
    out.append(reinterpret_cast<const char*>(&last), sizeof last);
    bytes.remove_prefix(2 + head[1]);
  }
  return out;
}

void read_all(const std::string& bytes) {
  HistoryReader reader(bytes, "h");
  uint64_t before = 0;
  while (const auto item = reader.next()) {
    demand(reader.end() <= static_cast<int64_t>(bytes.size()), "beyond the end");
    if (item->damage.empty()) {
      const std::string once = history_bytes(item->record, before);
      const std::string file = std::string(kHistoryMagic) + once;
      HistoryReader again(file, "h");
      const auto back = before == 0 ? again.next() : std::nullopt;
      demand(before != 0 || (back && back->damage.empty() &&
                             history_bytes(back->record, 0) == once),
             "a record that does not come back");
    }
    before = reader.last_hash();
  }
}

}  // namespace
}  // namespace cohort::fuzz

COHORT_FUZZ_TARGET(history) {
  for (const std::string& input : {std::string(bytes), sealed(bytes)}) {
    allow<DataError>([&] { read_all(input); });
    const MemoryFile file(input), other(input);
    allow<DataError>([&] { (void)verify_history(file.path()); });
    allow<DataError>([&] { (void)verify_history(file.path(), other.path()); });
  }
}
