// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cohort/comm/communicator.h"
#include "cohort/config/config.h"
#include "cohort/data/augment.h"
#include "cohort/data/dataset.h"
#include "cohort/data/tokenizer.h"
#include "cohort/nn/layers.h"
#include "cohort/step/block.h"

namespace cohort {

struct DataSets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> valid;  // may be null
  Augment augment;                 // of training batches; none: as they are
  // What text and tokens are to one another; none: there is no text.
  std::function<std::unique_ptr<Tokenizer>()> tokenizer = nullptr;
};

// Data on its way from disk while the ranks find one another.
class DataLoading {
 public:
  virtual ~DataLoading() = default;
  // Collective over the ranks of this node; the first of them reads.
  virtual DataSets finish(Communicator* node) = 0;
};

// A whole run under a name: model, data and defaults, about a page of code. Settings
// reach it as a Config; it knows nothing of ranks.
class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view help() const = 0;  // one line
  // The common keys with this recipe's defaults, and its own.
  virtual Config defaults() const = 0;
  // `part`: what the rank at hand has of the layers. ConfigError where the model cannot
  // be cut so.
  virtual Chain make_chain(const Config& config, const TensorPart& part) const = 0;
  // Tokens that its model reads at once; 0: it reads none.
  virtual int64_t context(const Config&) const { return 0; }
  // Why its model continues no text, as the rest of a sentence that begins with the
  // recipe's name; empty: it does.
  virtual std::string why_no_continuation(const Config&) const {
    return "is no language model";
  }
  // What is made, or refused, once on a node before its ranks start; load() does what
  // is missing. Computes with no tensor: the process forks afterwards.
  virtual void prepare(const Config&) const {}
  // `reader`: this rank is the first of its node, and may begin to read now.
  virtual std::unique_ptr<DataLoading> load(const Config& config,
                                            bool reader) const = 0;
};

// ConfigError unless one rank has all of each layer.
void require_whole_layers(const Recipe& recipe, const TensorPart& part);

// The value of a key where 0 stands for the recipe's own.
inline int64_t given_or(const Config& config, std::string_view key, int64_t own) {
  const int64_t given = config.get_int(key);
  return given > 0 ? given : own;
}

// Every recipe there is.
std::span<const Recipe* const> all_recipes();

// ConfigError unless the recipe's model continues texts. `who` asks: "[train]
// --sample".
void require_continuation(std::string_view who, const Recipe& recipe,
                          const Config& config);

// ConfigError with the nearest name for one that is not there.
const Recipe& find_recipe(std::string_view name);

}  // namespace cohort
