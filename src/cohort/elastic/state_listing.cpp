// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/state_listing.h"

#include <algorithm>
#include <sstream>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kWidest = 16;                      // bytes an element
constexpr int64_t kMostElements = int64_t{1} << 58;  // times the widest: in range

void write_box(std::ostream& out, const TensorBox& box) {
  out << box.cut.size();
  for (const auto* list : {&box.cut, &box.from, &box.to})
    for (const int64_t n : *list) out << ' ' << n;
  out << '\n';
}

void read_box(std::istream& in, TensorBox& box) {
  size_t dims = 0;
  in >> dims;
  if (dims > kMostDims) in.setstate(std::ios::failbit);
  for (auto* list : {&box.cut, &box.from, &box.to})
    for (size_t d = 0; in && d < dims; ++d) in >> list->emplace_back();
}

void write_list(std::ostringstream& out, std::span<const StatePiece> pieces) {
  out << pieces.size() << '\n';
  for (const auto& [tensor, data] : pieces)
    write_box(out << tensor.spec.name << '\n'
                  << tensor.spec.begin << ' ' << tensor.spec.end << ' '
                  << data.element_size() << ' ',
              tensor.spec.box);
}

bool is_legal(const Listing& one) {
  const int64_t most = one.box.is_whole()
                           ? kMostElements
                           : numel_within(one.box.cut, kMostElements).value_or(-1);
  return one.width >= 1 && one.width <= kWidest && most >= 0 &&
         box_trouble(one.box, most).empty() && one.begin >= 0 && one.begin <= one.end &&
         one.end <= (one.box.is_whole() ? most : one.map().numel());
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
    read_box(in, one.box);
    if (!in || !is_legal(one)) in.setstate(std::ios::failbit);
    list.push_back(std::move(one));
  }
  if (!in) throw CommError("[elastic.state] a peer's list of its state cannot be read");
  return list;
}

}  // namespace

BoxMap Listing::map() const {
  return BoxMap(
      box, box.is_whole() ? end : numel_within(box.cut, kMostElements).value_or(-1));
}

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
