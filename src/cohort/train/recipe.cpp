// SPDX-License-Identifier: Apache-2.0
#include "cohort/recipe.h"

#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

class DataAtHand final : public DataLoading {
 public:
  explicit DataAtHand(DataSets data) : data_(std::move(data)) {}
  DataSets finish(Communicator*) override { return std::move(data_); }

 private:
  DataSets data_;
};

}  // namespace

std::unique_ptr<DataLoading> data_at_hand(DataSets data) {
  return std::make_unique<DataAtHand>(std::move(data));
}

void require_whole_layers(const Recipe& recipe, const TensorPart& part) {
  if (part.size > 1)
    throw ConfigError(text("[recipes] layout tp=", part.size, ": the layers of ",
                           recipe.name(), " cannot be cut; legal: tp=1"));
}

}  // namespace cohort
