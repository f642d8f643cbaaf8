// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort::cli {

// A line for each recipe.
std::string recipe_list();

// What `cohort train --help` adds to the list of flags: recipes, keys, examples, exit
// codes.
std::string train_help();

}  // namespace cohort::cli
