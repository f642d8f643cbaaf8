// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/state_listing.h"

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kWidest = 16;                      // bytes per element
constexpr int64_t kMostElements = int64_t{1} << 58;  // times the widest: in range

bool is_legal(const Listing& one) {
  const int64_t most = one.box.is_whole()
                           ? kMostElements
                           : numel_within(one.box.cut, kMostElements).value_or(-1);
  return one.width >= 1 && one.width <= kWidest && most >= 0 &&
         box_trouble(one.box, most).empty() && one.begin >= 0 && one.begin <= one.end &&
         one.end <= (one.box.is_whole() ? most : one.map().numel());
}

std::vector<Listing> listings_of(std::span<const StatePiece> pieces) {
  std::vector<Listing> list;
  for (const auto& [tensor, data] : pieces)
    list.push_back({.name = tensor.spec.name,
                    .box = tensor.spec.box,
                    .begin = tensor.spec.begin,
                    .end = tensor.spec.end,
                    .width = static_cast<int64_t>(data.element_size())});
  return list;
}

}  // namespace

BoxMap Listing::map() const {
  return BoxMap(
      box, box.is_whole() ? end : numel_within(box.cut, kMostElements).value_or(-1));
}

StateListing list_state(std::span<const StatePiece> have,
                        std::span<const StatePiece> want) {
  return {.have = listings_of(have), .want = listings_of(want)};
}

StateListing read_listing(const std::string& record) {
  constexpr const char* kUnread =
      "[elastic.state] a peer's list of its state cannot be read";
  auto listing = read_record<StateListing>(record, ErrorKind::kComm, kUnread);
  for (const auto* list : {&listing.have, &listing.want})
    for (const auto& one : *list)
      if (!is_legal(one))
        throw CommError(text(kUnread, ": elements ", one.begin, " to ", one.end, " of ",
                             one.name, ", ", one.width, " bytes each"));
  return listing;
}

}  // namespace cohort
