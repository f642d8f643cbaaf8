// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/config.h"
#include "cohort/data.h"
#include "cohort/error.h"
#include "cohort/layers.h"
#include "cohort/rate_schedule.h"
#include "cohort/update_rule.h"

// A recipe is a whole run under a name, about a page of code: run_program() (program.h)
// gives it every command of `cohort`, and its keys a place in --help.

namespace [[gnu::visibility("default")]] cohort {

struct DataSets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> valid;  // may be null
  Augment augment;                 // changes training batches; none: as they are
  // What text and tokens are to one another; none: there is no text.
  std::function<std::unique_ptr<Tokenizer>()> tokenizer = nullptr;
};

// Data on its way from disk while the ranks find one another. It may be destroyed at
// any time, also before finish().
class DataLoading {
 public:
  virtual ~DataLoading() = default;
  // Collective over the ranks of this node; the first of them reads. Null for a rank
  // that takes part alone, as one that joins a run later: it has read for itself.
  // Called once, in the thread that called load(); the sets are the caller's, and need
  // this object no more. Failure: DataError, which ends the run; CommError as in
  // Communicator.
  virtual DataSets finish(Communicator* node) = 0;
};

// Data that is there already: made, not read, by each rank for itself.
std::unique_ptr<DataLoading> data_at_hand(DataSets data);

// Model, data and defaults. Settings reach it as a Config; it knows nothing of ranks.
// The same Config gives the same model and the same samples on every rank.
//
// Order of calls: defaults() in the process that starts ranks, prepare() there once,
// then in each rank load(), make_chain() while data is on its way, and
// DataLoading::finish(). Failure: ConfigError for settings that it cannot follow,
// DataError for data; both end the run in one line. Thread safety: const, and called
// from one thread of a process; but verify_step() and the command `verify` make a chain
// in a thread for each rank, at once, and these use one rule. It outlives what it has
// made.
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
  // A rule of its own that weights change by; null: the one of optim.name. For ranks on
  // processors (UpdateOptions::own).
  virtual std::unique_ptr<UpdateRule> make_rule(const Config&) const { return nullptr; }
  // A learning rate of its own; null: the one of schedule.* and optim.lr.
  virtual RateFunction make_rate(const Config&) const { return nullptr; }
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

}  // namespace cohort
