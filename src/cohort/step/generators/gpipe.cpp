// SPDX-License-Identifier: Apache-2.0
// All slices forward, then all backward (Huang et al., GPipe): the simplest order, and
// the one that keeps the activations of every slice.
#include "cohort/step/generators/turns.h"

namespace cohort {

std::vector<Turn> gpipe(const PipePlace& here) {
  std::vector<Turn> turns;
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
    for (int round = 0; round < here.rounds; ++round)
      turns.push_back({kind, here.place, round});
  return turns;
}

}  // namespace cohort
