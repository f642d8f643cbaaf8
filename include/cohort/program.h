// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cohort/recipe.h"

namespace [[gnu::visibility("default")]] cohort {

// The program `cohort` with recipes of your own beside those it has: train, step,
// verify, sample, bench, checkpoint, launch and the rest, with all their flags and exit
// codes. A program of one line:
//
//   int main(int argc, char** argv) {
//     return cohort::run_program(argc, argv, {my_recipe()});
//   }
//
// Call it first in main(), from the only thread there is, before any tensor is
// computed: ranks are forked from this process. It reads the command line, runs one
// command, writes an error as one line to stderr, and returns the exit code
// (docs/commands.md).
//
// A recipe with the name of another, or without one, ends every command with exit
// code 2.
int run_program(int argc, char** argv,
                std::vector<std::shared_ptr<const Recipe>> recipes = {});

}  // namespace cohort
