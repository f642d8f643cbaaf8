// SPDX-License-Identifier: Apache-2.0
#include "cli/train_help.h"

#include "cohort/config.h"
#include "cohort/core/error.h"

namespace cohort::cli {

std::string recipe_list(const RecipeList& recipes) {
  std::string list = "Recipes:\n";
  for (const auto& recipe : recipes.all())
    list += text("  ", recipe->name(), "  ", recipe->help(), "\n");
  return list;
}

namespace {

// Keys that some recipe has beyond those of all.
std::string own_keys(const RecipeList& recipes) {
  std::string list;
  for (const auto& recipe : recipes.all())
    if (const Keys own = recipe->defaults().keys().without(common_keys());
        !own.all().empty())
      list += text("\nKeys of ", recipe->name(), ":\n", own.describe());
  return list;
}

}  // namespace

std::string train_help(const RecipeList& recipes) {
  return text(recipe_list(recipes), "\nKeys for --set and --config:\n",
              common_keys().describe(), own_keys(recipes), R"(
Examples:
  cohort train fashion-mnist -n 2
  cohort train fashion-mnist -n 2 --max-steps 100 --set optim.lr=0.1 --json
  cohort train fashion-mnist -n 2 --config run.yaml --out runs/first
  cohort train fashion-mnist -n 2 --set checkpoint.dir=runs/a --set checkpoint.every_steps=100
  cohort train fashion-mnist -n 4 --set checkpoint.dir=runs/a --resume
  cohort train gpt-tiny -n 2 --sample "In the beginning" --set sample.tokens=200
  cohort train mlp -n 4 --nnodes 2 --rdzv node0:29400 --rdzv-token ~/.rdzv    on each node
  torchrun --nproc-per-node 2 --no-python cohort train fashion-mnist

Exit codes: 0 done; 1 a bug or a NaN loss; 2 usage or configuration; 3 data; 4 a rank lost;
5 checkpoint; 75 stopped on request with state saved; 128 + signal otherwise.
)");
}

}  // namespace cohort::cli
