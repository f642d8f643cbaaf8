// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/action.h"
#include "cohort/step/pipeline.h"

namespace cohort {

// All blocks of a stage, for the slices of one round: Forward, Backward, or the two
// parts of it.
struct Turn {
  ActionKind kind;
  int stage;
  int round;

  bool operator==(const Turn&) const = default;
};

// Whether the gradients of a slice are whole behind it.
constexpr bool completes_gradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

// One place of a pipeline. Its stages are place, place + places, and so on.
struct PipePlace {
  int place = 0;
  int places = 1;
  int stages = 1;  // at this place
  int rounds = 1;  // slices of the rank that has most
};

// The orders of a pipeline. They say nothing but whose turn it is: transfers, sums,
// updates, recompute and shards follow from that. Every slice has a Forward in each
// stage, and its gradients are whole in the order of slices.
std::vector<Turn> gpipe(const PipePlace& here);
std::vector<Turn> one_forward_one_backward(const PipePlace& here);
std::vector<Turn> interleaved(const PipePlace& here);
std::vector<Turn> zero_bubble(const PipePlace& here);

std::vector<Turn> turns_of(PipelineOrder order, const PipePlace& here);

}  // namespace cohort
