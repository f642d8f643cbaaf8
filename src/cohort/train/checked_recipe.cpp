// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/checked_recipe.h"

#include <set>
#include <string>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/mesh.h"

namespace cohort {
namespace {

[[noreturn]] void refuse(const Recipe& recipe, const std::string& what) {
  throw ConfigError(text("[recipes] ", recipe.name(), ": ", what));
}

}  // namespace

TensorPart tensor_part(const Config& config, const Layout& layout, int rank) {
  return {.rank = Mesh(layout).coordinate(rank, Axis::kTensor),
          .size = layout.tp,
          .sequence = config.get_bool("model.sequence_parallel")};
}

Chain checked_chain(const Recipe& recipe, const Config& config,
                    const TensorPart& part) {
  Chain chain = recipe.make_chain(config, part);
  if (chain.blocks.empty())
    refuse(recipe, "its chain is empty; legal: 1 or more blocks");
  std::set<std::string> names;
  for (const auto& block : chain.blocks) {
    if (!block) refuse(recipe, "a block of its chain is null");
    if (!names.insert(block->name()).second)
      refuse(recipe, text("two blocks are called '", block->name(),
                          "'; legal: a name of its own for each"));
  }
  if (chain.blocks[0]->fields().empty())
    refuse(recipe,
           text("its first block '", chain.blocks[0]->name(),
                "' takes no field of a batch; legal: one or more, as \"input\""));
  if (!chain.loss.function) refuse(recipe, "its chain has no loss");
  return chain;
}

std::unique_ptr<DataLoading> begin_loading(const Recipe& recipe, const Config& config,
                                           bool reader) {
  auto loading = recipe.load(config, reader);
  if (!loading) refuse(recipe, "load() gives nothing; legal: a DataLoading");
  return loading;
}

DataSets finish_loading(const Recipe& recipe, DataLoading& loading,
                        Communicator* node) {
  DataSets data = loading.finish(node);
  if (!data.train || data.train->size() < 1)
    throw ConfigError(
        text("[recipes] ", recipe.name(),
             ": its data has nothing to train with; legal: a data set of 1 "
             "or more samples"));
  return data;
}

}  // namespace cohort
