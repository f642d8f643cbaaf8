// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cohort/train/layout_oracle.h"
#include "recipes/recipe_list.h"

namespace cohort::cli {

// The flags of `cohort verify`, as given.
struct VerifyArgs {
  std::string recipe;
  std::string ranks = "1";  // -n
  std::string layout;
  bool all = false;
  int most_ranks = 8;  // with --all
  int every = 1;       // with --all: one layout in so many
  bool exact = false;
  std::vector<std::string> set;  // key=value
  std::string config;            // a YAML file
  bool json = false;
};

// Makes one step of keys that have their values already in the layout of `args`, and
// compares it with one rank's. ConfigError where there is no such step.
Verdict verify_one(const VerifyArgs& args, const Recipe& recipe, const Config& config);

// Makes one step in a layout, or in all, and compares it with one rank's. Returns 0 if
// they are equal, 1 if not. ConfigError where there is no such step.
int run_verify(const VerifyArgs& args, const RecipeList& recipes, std::ostream& out);

inline constexpr const char* kVerifyHelp =
    R"(
One step in the layout and one on a single rank, from the same weights and samples, which
are made up. Computed in float64, where layouts that are right agree to 1e-9 of a tensor's
largest element; compared are the loss, every gradient and every updated weight. The
first tensor that deviates is named, with the actions that last touched it, and the first
block whose output is another one. Ranks are threads of this process; batch and slices
are 8 unless set.

With --exact the step is that of a run with --exact, and every bit must be the same as
with as many tensor-parallel ranks and nothing else.

Exit code: 0 equal, 1 not.

Examples:
  cohort verify gpt-tiny -n 8 --layout dp=2,tp=2,pp=2,shard=3
  cohort verify llama-tiny -n 4 --layout pp=4 --set pipeline.schedule=zero-bubble
  cohort verify mlp --all --ranks 4
  cohort verify gpt-tiny -n 4 --layout dp=2,tp=2 --exact
)";

}  // namespace cohort::cli
