// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cohort/core/record.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// A piece of state that a rank has or wants: elements [begin, end) of a box of a
// tensor.
struct Listing {
  std::string name;
  TensorBox box = {};
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width = 0;  // bytes per element

  // As far as this piece knows the tensor.
  BoxMap map() const;
};
auto record_fields(Alike<TensorBox> auto& box) {
  return std::tie(box.cut, box.from, box.to);
}
auto record_fields(Alike<Listing> auto& one) {
  return std::tie(one.name, one.box, one.begin, one.end, one.width);
}

// What a rank tells the others of itself.
struct StateListing {
  std::vector<Listing> have, want;
};
auto record_fields(Alike<StateListing> auto& listing) {
  return std::tie(listing.have, listing.want);
}

StateListing list_state(std::span<const StatePiece> have,
                        std::span<const StatePiece> want);
// CommError for a record of none, or of what no tensor has.
StateListing read_listing(const std::string& record);

}  // namespace cohort
