// SPDX-License-Identifier: Apache-2.0
// One forward and one backward in turn, behind as many forwards as there are places to
// come (Fan et al., DAPPLE): the bubble of gpipe, with the activations of no more
// slices than there are places.
#include <algorithm>

#include "cohort/step/generators/turns.h"

namespace cohort {

std::vector<Turn> one_forward_one_backward(const PipePlace& here) {
  const int ahead = std::min(here.rounds, here.places - here.place);
  std::vector<Turn> turns;
  for (int round = 0; round < ahead; ++round)
    turns.push_back({ActionKind::kForward, here.place, round});
  for (int round = 0; round < here.rounds; ++round) {
    turns.push_back({ActionKind::kBackward, here.place, round});
    if (round + ahead < here.rounds)
      turns.push_back({ActionKind::kForward, here.place, round + ahead});
  }
  return turns;
}

}  // namespace cohort
