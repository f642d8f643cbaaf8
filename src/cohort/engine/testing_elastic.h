// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/block.h"
#include "cohort/core/fault_point.h"
#include "cohort/engine/executor.h"
#include "cohort/update_rule.h"
#include "support/small_net.h"

namespace cohort::test {

// For tests of elastic steps: small runs in every layout, their state element by
// element, and what is left when a fault has struck.

constexpr int kSlices = 4;
constexpr int64_t kSteps = 3;
constexpr uint64_t kSampleKey = 0xfedcba9876543210u;
inline const SampleSum kAllSamples = small_samples(kSampleKey, kSlices);

struct Way {
  int ranks = 2;
  int shard = 0;
  bool elastic = true;
  at::ScalarType dtype = at::kFloat;
  const char* rule = "adamw";
  bool resident = false;  // the state lies where a device would have it
};

std::ostream& operator<<(std::ostream& out, const Way& way);
std::vector<Way> every_way();
std::vector<Way> every_resident_way();

// With running statistics, and a frozen parameter in a bucket of its own.
Chain make_chain();

// One rank of a run.
class Rank {
 public:
  Rank(const Way& way, Communicator& comm, FaultPlan* faults = nullptr,
       Chain chain = make_chain());

  static Schedule schedule_of(const Chain& chain, const Way& way);

  StepResult step(int64_t step, const SampleSum& expected = kAllSamples);
  void start(int64_t step, const SampleSum& expected = kAllSamples);
  Executor& operator*() { return executor_; }
  Executor* operator->() { return &executor_; }

 private:
  Chain chain_;
  std::unique_ptr<UpdateRule> rule_;
  Executor executor_;
};

// Elements of the state by name and place.
using Elements = std::map<std::pair<std::string, int64_t>, float>;
Elements elements(Executor& executor, Holding which);

// Ranks are threads of one process: what they leave here, all can read.
using Shared = std::vector<Elements>;
// What a run without faults owns after each step, by rank.
std::vector<Shared> undisturbed(const Way& way);
Elements joined(const Shared& owned);

// What the ranks do when a fault has struck one of them in step 1 is for `after`.
using After = std::function<void(Rank& rank, Communicator& comm)>;
void disturb(const Way& way, Fault fault, const After& after);

}  // namespace cohort::test
