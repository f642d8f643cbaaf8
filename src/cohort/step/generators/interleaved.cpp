// SPDX-License-Identifier: Apache-2.0
// One forward and one backward in turn, with several stages at each place (Narayanan et
// al., Megatron-LM): each is a part as long, and so is the bubble, for more transfers.
//
// As many slices as there are places pass the first stage of a place, then the next
// one, and so on; then the next slices do. Backward goes the other way.
#include <algorithm>

#include "cohort/step/generators/turns.h"

namespace cohort {
namespace {

// The k-th forward of a place, or its k-th backward.
Turn nth_turn(const PipePlace& here, ActionKind kind, int k) {
  const int at_once = here.places * here.stages;
  const int passed = k % at_once / here.places;
  const int nth = kind == ActionKind::kForward ? passed : here.stages - 1 - passed;
  return {kind, here.place + nth * here.places,
          k / at_once * here.places + k % here.places};
}

}  // namespace

// Where slices are no multiple of the places, the last ones are left out everywhere:
// what is left is in the same order.
std::vector<Turn> interleaved(const PipePlace& here) {
  const int groups = (here.rounds + here.places - 1) / here.places;
  const int total = groups * here.places * here.stages;
  const int ahead = std::min(
      total, 2 * (here.places - here.place - 1) + (here.stages - 1) * here.places + 1);
  std::vector<Turn> turns;
  const auto add = [&](ActionKind kind, int k) {
    const Turn turn = nth_turn(here, kind, k);
    if (turn.round < here.rounds) turns.push_back(turn);
  };
  for (int k = 0; k < ahead; ++k) add(ActionKind::kForward, k);
  for (int k = 0; k < total; ++k) {
    add(ActionKind::kBackward, k);
    if (k + ahead < total) add(ActionKind::kForward, k + ahead);
  }
  return turns;
}

}  // namespace cohort
