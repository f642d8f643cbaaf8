// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/block.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/checked_calls.h"
#include "cohort/step/gradient_target.h"
#include "cohort/step/logit_kernels.h"

namespace cohort {

// What a block is given: the values of the block before, and behind them the fields of
// the batch that it takes.
Values with_fields(Values values, const Block& block, const Batch& batch);

// What blocks compute with, and where their gradients go. A place is the number of a
// parameter in the order of the chain, each counted once.
class Surroundings {
 public:
  virtual ~Surroundings() = default;

  virtual const Batch& batch(int slice) = 0;
  // Null: the host draws.
  virtual DeviceRandom* random(int) { return nullptr; }
  virtual void keep_loss(int slice, const WeightedLoss& loss) = 0;

  // The gradient of the loss itself.
  virtual Tensor seed() = 0;
  // What a block adds to the gradient of a parameter, for a slice.
  struct Addend {
    int place;
    int block;
    int slice;
  };
  // Where it belongs, and whether it is added to what earlier slices left there. Asked
  // for when its backward begins.
  virtual GradTarget home(const Addend& addend) = 0;
  // A gradient at home is about to be added to; it has arrived, all of it or what one
  // of several blocks adds.
  virtual void open(const Addend&) {}
  virtual void close(const Addend&) {}

 protected:
  Surroundings() = default;
};

// Runs forward, recompute and backward of blocks, each for a slice: the one place where
// blocks are called. Several slices may be under way, in any order that has a block's
// forward before its backward. A step of a pipeline computes some blocks alone: values
// at the borders are put in and taken out.
//
// Borrows the chain and the surroundings. Thread safety: none.
class BlockRunner {
 public:
  struct Options {
    uint64_t seed = 0;
    int first_slice = 0;  // this rank's first, in the global batch
    // Off: a forward of training must not wait for what it computes, so right answers
    // are not counted in it.
    bool may_wait = true;
    LogitKernels* logits = nullptr;
    CheckedCalls* calls = nullptr;  // null: blocks are alone
  };
  BlockRunner(const Chain& chain, Surroundings& around, const Options& options);
  ~BlockRunner();

  // `last`: a block in the place of the chain's last one until the next begin(); what
  // it gives is no loss. Null: the chain's own.
  void begin(int64_t step, Phase phase, Block* last = nullptr);
  // Drops all that is under way.
  void clear();

  // `keeps_graph`: its backward needs no recompute.
  void forward(int block, int slice, bool keeps_graph);
  void recompute(int block, int slice);
  void backward(int block, int slice);
  // A backward in two parts: all that others wait for, with what layers cannot put off;
  // then the gradients of parameters. Those of a block are made in the order of slices.
  void backward_input(int block, int slice);
  void backward_weight(int block, int slice);

  // The output of a block and the gradient of it, where they cross a border.
  Values& output(int block, int slice) { return flight(block, slice).outputs; }
  Values& gradient(int block, int slice) { return flight(block, slice).gradient; }
  // They have been sent: what no backward here starts from is dropped.
  void drop_sent(int block, int slice);

  // Whether some forward of that slice waits for its backward.
  bool is_under_way(int slice) const;

  // What all forwards since begin() learned, with their slices.
  std::vector<Statistic>& statistics() { return statistics_; }

 private:
  // A forward that waits for its backward.
  struct Flight {
    Values inputs;
    Values outputs;   // empty: nothing was computed, or nobody needs them any more
    Values gradient;  // for each output; undefined where one has none
    std::map<int, std::shared_ptr<GradTarget>> cells;  // by place
    bool has_graph = false;
  };
  // What a backward_input leaves for its backward_weight.
  struct Deferred {
    std::map<int, std::shared_ptr<GradTarget>> cells;  // by place
    LaterGradients work;
    Values gradients;  // those that could not be put off, by trained parameter
  };
  class Cells;

  Flight& flight(int block, int slice);
  Block& block_at(int block) const {
    return last_ && is_last(block) ? *last_ : *chain_.blocks[block];
  }
  Values run(int block, int slice, const Values& inputs, bool again);
  BlockCall::When forward_now() const;
  Values loss_of(int slice, const Values& outputs, bool again);
  std::vector<int> trained_in(int block) const;
  Flight take_flight(int block, int slice);
  Values run_backward(int block, int slice, Flight& flight);
  Values differentiate(int block, Flight& flight, const std::vector<int>& trained);
  void pass_on(int block, int slice, Flight& flight, const Values& gradients);
  GradTarget home_of(const Surroundings::Addend& to);
  // `holds_all`: what earlier slices left at home is in it already.
  void keep(const Surroundings::Addend& to, const Tensor& gradient, bool holds_all);
  bool is_last(int block) const {
    return block + 1 == static_cast<int>(chain_.blocks.size());
  }

  const Chain& chain_;
  Surroundings& around_;
  Options options_;
  std::vector<Tensor> parameters_;                  // by place
  std::unordered_map<const void*, int> places_by_;  // tensor
  std::vector<std::vector<int>> places_;            // by block
  std::vector<bool> shared_;                        // by place: several blocks use it
  std::vector<bool> input_has_gradient_;            // by block
  int64_t step_ = 0;
  Phase phase_ = Phase::kTrain;
  Block* last_ = nullptr;  // in the place of the chain's; null: there is none
  std::map<std::pair<int, int>, Flight> flights_;     // by block and slice
  std::map<std::pair<int, int>, Deferred> deferred_;  // by block and slice
  // Shared places, with slices, and where their gradients were written.
  std::set<std::tuple<int, int, const void*>> written_;
  std::vector<Statistic> statistics_;
};

}  // namespace cohort
