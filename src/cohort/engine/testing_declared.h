// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <vector>

#include "cohort/engine/action_watch.h"
#include "cohort/engine/executor.h"
#include "cohort/step/pipeline.h"

namespace cohort::test {

// For tests of what actions declare: short runs of every kind of step.

struct DeclaredCase {
  int ranks = 2, stages = 1, tensor = 1, shard = 0, replicate = 1;
  bool elastic = false, exact = false, clip = false, shares = false;
  bool narrow = false;      // computes in bfloat16
  bool statistics = false;  // a model that keeps some
  bool language = false;    // a model of tokens, whose tensors can be cut
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
};

std::ostream& operator<<(std::ostream& out, const DeclaredCase& c);
std::vector<DeclaredCase> declared_cases();

Schedule declared_step(const DeclaredCase& c);

// Is told whose actions it hears of before the first of them.
class ExecutorWatch : public ActionWatch {
 public:
  virtual void watch(const Executor& executor) { executor_ = &executor; }

 protected:
  const Executor& executor() const { return *executor_; }
  // The place of an action in the list.
  size_t index_of(const Action& action) const;

 private:
  const Executor* executor_ = nullptr;
};

struct DeclaredRun {
  ExecutorWatch* watch = nullptr;
  bool in_turn = true;
  // Changes the step behind the checker's back.
  std::function<void(Schedule& schedule)> alter = nullptr;
};

// Some steps; the hash of the weights they lead to, or 0 where copies of the state
// differ. The buckets have several pages.
uint64_t train_declared(const DeclaredCase& c, Communicator& comm,
                        const DeclaredRun& run = {});

// A declaration that is taken to be missing: an action of that kind declares nothing of
// such values, or only that it reads them. All values of a gradient are alike.
struct Forgotten {
  ActionKind kind;
  What what;
  bool reads_stay = false;
};
bool is_forgotten(const std::optional<Forgotten>& forgotten, const Action& action,
                  const Value& value);

bool is_of_bucket(What what);

}  // namespace cohort::test
