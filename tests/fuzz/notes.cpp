// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/join_card.h"
#include "cohort/elastic/state_listing.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/rendezvous_notes.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

template <typename Decode>
void comes_back(const std::string& input, const Decode& decode) {
  allow<CommError>([&] {
    const std::string once = encode(decode(input));
    demand(encode(decode(once)) == once, "a note that does not come back: " + once);
  });
}

}  // namespace
}  // namespace cohort::fuzz

// What ranks and agents leave for one another in a store.
COHORT_FUZZ_TARGET(notes) {
  const std::string input(bytes);
  comes_back(input, process::decode_node);
  comes_back(input, process::decode_world);
  comes_back(input, process::decode_event);
  allow<CommError>([&] { (void)process::decode_port(input); });
  allow<ConfigError>([&] { (void)process::parse_endpoint(input); });
  allow<CommError>([&] {
    const std::string once = to_text(to_card(input));
    demand(to_text(to_card(once)) == once, "a card that does not come back");
  });
  allow<CommError>([&] {
    for (const auto& piece : to_listing(input).want)
      demand(piece.begin <= piece.end, "a piece that runs backwards");
  });
  if (const auto report = parse_error_text(input))
    demand(report->message.find('\n') == std::string::npos &&
               report->earliest_ns <= report->latest_ns,
           "a report of two lines, or that ends before it begins");
}
