// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/state_listing.h"

#include <sstream>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kWidest = 16;                      // bytes an element
constexpr int64_t kMostElements = int64_t{1} << 58;  // times the widest: in range

void write_list(std::ostringstream& out, std::span<const StatePiece> pieces) {
  out << pieces.size() << '\n';
  for (const auto& [tensor, data] : pieces)
    out << tensor.spec.name << '\n'
        << tensor.spec.begin << ' ' << tensor.spec.end << ' ' << data.element_size()
        << '\n';
}

// One after another: a number in front is no reason to believe that so many follow.
std::vector<Listing> read_list(std::istringstream& in) {
  std::vector<Listing> list;
  size_t count = 0;
  in >> count;
  for (size_t i = 0; in && i < count; ++i) {
    Listing one;
    in >> std::ws;
    std::getline(in, one.name);
    in >> one.begin >> one.end >> one.width;
    const bool legal = one.begin >= 0 && one.begin <= one.end &&
                       one.end <= kMostElements && one.width >= 1 &&
                       one.width <= kWidest;
    if (!legal) in.setstate(std::ios::failbit);
    list.push_back(std::move(one));
  }
  if (!in) throw CommError("[elastic.state] a peer's list of its state cannot be read");
  return list;
}

}  // namespace

std::string to_text(std::span<const StatePiece> have,
                    std::span<const StatePiece> want) {
  std::ostringstream out;
  write_list(out, have);
  write_list(out, want);
  return out.str();
}

StateListing to_listing(const std::string& text) {
  std::istringstream in(text);
  StateListing listing;
  listing.have = read_list(in);
  listing.want = read_list(in);
  return listing;
}

}  // namespace cohort
