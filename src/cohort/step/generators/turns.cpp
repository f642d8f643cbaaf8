// SPDX-License-Identifier: Apache-2.0
// In which order a place takes its slices: one after another, or, in a pipeline, one
// forward and one backward in turn, behind as many forwards as there are places to
// come.
#include <algorithm>

#include "cohort/step/generators/generators.h"

namespace cohort {

std::vector<Turn> turns_of(const ListWriter& list) {
  const int rounds = list.plan().rounds;
  const int ahead = std::min(rounds, list.plan().places() - list.place());
  std::vector<Turn> turns;
  for (int round = 0; round < ahead; ++round) turns.push_back({round, false});
  for (int round = 0; round < rounds; ++round) {
    turns.push_back({round, true});
    if (round + ahead < rounds) turns.push_back({round + ahead, false});
  }
  return turns;
}

}  // namespace cohort
