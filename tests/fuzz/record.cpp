// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/record.h"

#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

enum class Colour : int8_t { kRed };

struct Inner {
  int64_t id = 0;
  std::string name;
  std::vector<int> sizes;
};
auto record_fields(Alike<Inner> auto& inner) {
  return std::tie(inner.id, inner.name, inner.sizes);
}

// A field of each kind.
struct Everything {
  bool yes = false;
  int small = 0;
  uint64_t word = 0;
  double number = 0;
  Colour colour = Colour::kRed;
  std::optional<std::string> maybe;
  uint16_t fixed[2] = {};
  std::vector<Inner> list;
  std::map<std::string, int64_t> map;
};
auto record_fields(Alike<Everything> auto& e) {
  return std::tie(e.yes, e.small, e.word, e.number, e.colour, e.maybe, e.fixed, e.list,
                  e.map);
}

}  // namespace
}  // namespace cohort::fuzz

// The bytes where the fields are to be: behind the mark, which nobody guesses.
COHORT_FUZZ_TARGET(record) {
  const std::string mark = to_record(Everything{}).substr(0, kRecordMarkBytes);
  for (const auto& input : {std::string(bytes), mark + std::string(bytes)})
    allow<CommError>([&] {
      const auto read = read_record<Everything>(input, ErrorKind::kComm, "[fuzz] none");
      demand(to_record(read) == input, "a value in a second form");
    });
}
