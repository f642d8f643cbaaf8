// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/step/schedule.h"

// For tests: steps of pipelines and of tensor parallelism, written by hand from the
// order in which each place computes. No generator makes them; they show that the
// records of a schedule suffice, and what the rules say of them.
namespace cohort::test {

// One turn of a place: all blocks of a stage, for one slice.
struct Turn {
  enum class Kind { kForward, kBackward, kInput, kWeight };
  Kind kind;
  int stage;
  int slice;
};

struct Pipeline {
  int places = 2;
  int replicas = 1;       // data-parallel ranks at each place
  int tensor = 1;         // tensor-parallel ranks
  int context = 1;        // ranks that have a part of each sequence
  int experts = 1;        // ranks with other experts, in every second block
  int slices = 4;         // in the batch
  std::vector<int> ends;  // by stage: the block behind it; stage s is at s % places
  bool tied = false;      // the first and the last block share a bucket
  bool elastic = false;
  bool statistics = false;  // every block has them
  bool recompute = false;
  // What is sent to a neighbour, and what comes in next, is one exchange.
  bool batched = false;
  bool runs_ahead = false;
  // The turns of a place whose ranks compute so many slices.
  std::function<std::vector<Turn>(const Pipeline&, int place, int slices)> order;
};

std::vector<Turn> gpipe(const Pipeline& pipe, int place, int slices);
std::vector<Turn> one_forward_one_backward(const Pipeline& pipe, int place, int slices);
// All chunks of a place, `places` slices at a time.
std::vector<Turn> interleaved(const Pipeline& pipe, int place, int slices);
// As one_forward_one_backward, weights as late as the next slice's inputs allow.
std::vector<Turn> zero_bubble(const Pipeline& pipe, int place, int slices);

Schedule make(const Pipeline& pipe);

// Twenty and more, of all these orders, each with its name.
struct NamedPipeline {
  std::string name;
  Pipeline pipe;
};
std::vector<NamedPipeline> right_pipelines();

}  // namespace cohort::test
