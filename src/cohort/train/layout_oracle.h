// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/layers.h"
#include "cohort/step/block_choice.h"
#include "cohort/step/layout.h"
#include "cohort/step/pipeline.h"
#include "cohort/step/schedule.h"
#include "cohort/tensor.h"
#include "cohort/update_rule.h"

namespace cohort {

// A way to make one step.
struct LayoutCase {
  Layout layout;
  PipelineOptions pipeline;
  bool sequence = true;  // tensor-parallel ranks have parts of sequences in between
  BlockChoice recompute;

  std::string text() const;  // "dp=2,tp=2,pp=2,shard=3, zero-bubble, recompute"
};

// What a step made so has that is not as on one rank.
struct Deviation {
  std::string what;     // "the loss", "the gradient of h.0.weight", "h.0.weight"
  double by = 0;        // as a fraction of that tensor's largest element
  int rank = 0;         // that has it
  std::string touched;  // what it was last changed by, there
  // The first output of a block that is another one, if any is: where, and which action
  // and collectives gave it.
  std::string began;

  std::string text() const;
};

struct Verdict {
  std::optional<Deviation> deviation;  // none: all is as on one rank
  double largest = 0;  // deviation of any tensor, of its largest element
};

struct OracleOptions {
  std::function<Chain(const TensorPart& part)> make_chain;
  const Dataset* data = nullptr;
  int64_t batch = 8;
  int slices = 8;
  uint64_t seed = 0;
  UpdateOptions update;
  DecayOptions decay;
  double clip = 0;
  double rate = 0.01;
  // A share of a tensor's largest element: in float64, where layouts that are right
  // agree to the last digits.
  double bound = 1e-9;
  // Float32, in the order that --exact adds in: every bit is the same, with the same
  // tensor parallelism on both sides.
  bool exact = false;
};

// Makes one training step in some layout, with a thread for each rank, and compares it
// with the same step on one: the loss, every gradient (an optimizer's first moment,
// which is nothing else after one step) and every updated weight. Both begin with the
// same weights.
//
// Borrows the data. Thread safety: none.
class LayoutOracle {
 public:
  explicit LayoutOracle(OracleOptions options);
  ~LayoutOracle();

  // ConfigError where there is no such step. What a rank throws otherwise is a
  // deviation.
  Verdict compare(const LayoutCase& one);

 private:
  struct RankState;
  struct Reference;

  // Outputs of blocks are compared with those of `wanted`, or kept if there is none.
  std::vector<RankState> run(const LayoutCase& one, const Reference* wanted) const;
  RankState run_rank(const LayoutCase& one, const Reference* wanted,
                     Communicator& comm) const;
  void watch(Chain& chain, const Reference* wanted, int part, RankState& state) const;
  Batch batch_of(int slice, const std::vector<std::string>& fields) const;
  const Reference& reference(int tensor_ranks, bool sequence);
  // The rank that has the first wrong output, or kNone; and what that is called.
  static int first_wrong(const std::vector<RankState>& ranks);
  static std::string output_text(const RankState& state, int rank);
  Verdict judge(const std::vector<RankState>& ranks, const Reference& wanted) const;

  OracleOptions options_;
  std::unique_ptr<UpdateRule> rule_;
  // By tensor-parallel ranks, and whether they have parts of sequences.
  std::map<std::pair<int, bool>, std::unique_ptr<Reference>> references_;
};

// Every layout of up to so many ranks, with every order of a pipeline, sequences cut
// and not, and some with recompute; of a model with so many blocks.
std::vector<LayoutCase> every_layout(int most_ranks, int blocks, int slices);

}  // namespace cohort
