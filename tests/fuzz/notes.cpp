// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "cohort/comm/join_card.h"
#include "cohort/data/token_sets.h"
#include "cohort/elastic/state_listing.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/rendezvous_notes.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

// The input where the fields of a note are to be: behind its mark. And by itself.
template <typename Decode, typename Encode>
void comes_back(const std::string& input, const Decode& decode, const Encode& encode) {
  const std::string empty = encode(std::remove_cvref_t<decltype(decode(input))>{});
  for (const auto& note : {input, empty.substr(0, kRecordMarkBytes) + input})
    allow<CommError>([&] {
      const std::string once = encode(decode(note));
      demand(encode(decode(once)) == once, "a note that does not come back: " + once);
    });
}

}  // namespace
}  // namespace cohort::fuzz

// What ranks and agents tell one another.
COHORT_FUZZ_TARGET(notes) {
  const std::string input(bytes);
  const auto encoded = [](const auto& note) { return encode(note); };
  const auto recorded = [](const auto& note) { return to_record(note); };
  comes_back(input, process::decode_node, encoded);
  comes_back(input, process::decode_world, encoded);
  comes_back(input, process::decode_agent_event, encoded);
  comes_back(input, decode_token_sets, encoded);
  comes_back(input, to_card, recorded);
  comes_back(
      input,
      [](const std::string& record) {
        const auto listing = read_listing(record);
        for (const auto& piece : listing.want)
          demand(piece.begin <= piece.end, "a piece that runs backwards");
        return listing;
      },
      recorded);
  allow<CommError>([&] { (void)process::decode_port(input); });
  allow<ConfigError>([&] { (void)process::parse_endpoint(input); });
  if (const auto report = parse_error_text(input))
    demand(report->message.find('\n') == std::string::npos &&
               report->earliest_ns <= report->latest_ns,
           "a report of two lines, or that ends before it begins");
}
