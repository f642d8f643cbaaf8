// SPDX-License-Identifier: Apache-2.0
// As one forward and one backward in turn, with a backward in two parts (Qi et al.,
// Zero Bubble Pipeline Parallelism, ZB-H1): what the place before waits for comes
// first, and gradients of weights fill the gaps. A place owes those of as many slices
// as there are places before it, so none holds more slices than the first place does.
#include "cohort/step/generators/turns.h"

namespace cohort {

std::vector<Turn> zero_bubble(const PipePlace& here) {
  std::vector<Turn> turns;
  int weights = 0;  // slices whose gradients are whole
  const auto add_weights_before = [&](int end) {
    for (; weights < end; ++weights)
      turns.push_back({ActionKind::kBackwardWeight, here.place, weights});
  };
  for (const Turn& turn : one_forward_one_backward(here)) {
    if (turn.kind == ActionKind::kForward) {
      turns.push_back(turn);
      continue;
    }
    turns.push_back({ActionKind::kBackwardInput, turn.stage, turn.round});
    add_weights_before(turn.round + 1 - here.place);
  }
  add_weights_before(here.rounds);
  return turns;
}

}  // namespace cohort
