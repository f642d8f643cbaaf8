// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/recipe.h"

// The training step of a recipe as data: made, checked, foretold, drawn and compared in
// a program of your own, without a launcher, a GPU or a file. What the commands `step`
// and `verify` show, as values.

namespace [[gnu::visibility("default")]] cohort {

struct StepOptions {
  int ranks = 1;
  std::string layout;  // as --layout: "dp=2,pp=2,shard=1"; empty: data parallel
  bool exact = false;  // the same bits at any world size
  // Where costs come from: a table of `cohort step --costs-out`, and the name of a
  // profile of links. Empty: blocks are run here, and links are guessed.
  std::string costs, links;
};

struct StepForecast {
  std::string layout;      // with what follows from it: "dp=2,pp=2,shard=1"
  int64_t actions = 0;     // in the lists of all roles
  double seconds = 0;      // foretold time of one step
  int64_t peak_bytes = 0;  // the most that any rank holds at once
  std::string summary;     // what `cohort step` prints
  std::string csv;         // the schedule: `cohort step --from` reads it
  std::string svg;         // its picture
};

// Makes the step of a batch, proves it by the checker's rules (docs/step.md), and
// foretells its time and memory. Runs each block of the model on a few made-up samples;
// starts no rank.
//
// Failure: ConfigError in one line for a layout that the model does not have, or a
// rule that the step breaks: which action of which role, and which value. Thread
// safety: one call at a time in a process; it sets the number of LibTorch's threads to
// 1.
StepForecast foretell_step(const Recipe& recipe, const Config& config,
                           const StepOptions& options = {});

struct StepVerdict {
  bool is_equal = true;
  double largest = 0;  // deviation of any tensor, over its largest element
  std::string
      deviation;  // the first tensor that differs, and which action touched it last
};

// Makes one step in the layout, with a thread for each rank, and the same on one rank:
// 8 made-up samples, in float64 with a bound of 1e-9, or with `exact` in float32 bit by
// bit. Loss, gradients and updated weights are compared. Failure and threads as above.
StepVerdict verify_step(const Recipe& recipe, const Config& config,
                        const StepOptions& options = {});

}  // namespace cohort
