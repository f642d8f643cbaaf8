// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"
#include "cohort/core/fault_point.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Makes the collectives inside blocks, and holds every block to what it declares: each
// call must be the next declared one, and none may be missing.
//
// begin() and end() go round each forward, recompute and backward of a block. Calls
// come from inside, also from autograd's thread; there no work of other lanes (updates)
// runs while one is waited for. With tensors of a GPU nothing is waited for: what the
// stream does next comes behind the call. Failure: BugError in one line for a call that
// differs. Thread safety: one thread at a time.
class CheckedCalls final : public BlockCalls {
 public:
  struct Options {
    // Which ranks a rank calls along some axes; null: it is alone there.
    std::function<Communicator*(AxisSet axes)> group = nullptr;
    int rank = 0;                 // in the world, for fault points
    FaultPlan* faults = nullptr;  // reached as "engine.call"
    // What a group has that is not there: a dry run takes it for equal members.
    int stand_in = 1;
    bool exact = false;  // sums in the order of members, whatever a backend does
  };
  CheckedCalls(const Chain& chain, Options options);

  // From now on `by` stands in the place of that block.
  void replace(int block, const Block& by);

  void begin_step() { made_in_step_ = 0; }
  void begin(int block, BlockCall::When when, int64_t samples);
  void end();
  // A slice without samples: the same calls, to which it gives zeros.
  void give_nothing(int block, BlockCall::When when);

  int size(AxisSet axes) const override;
  void all_reduce(AxisSet axes, Tensor& tensor) override;
  void all_gather(AxisSet axes, Tensor& out, const Tensor& shard) override;
  void reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) override;

 private:
  struct Declared {
    std::string name;
    Tensor weight;                    // the first; undefined: there is none
    std::vector<BlockCall> calls[3];  // by when
  };

  static Declared declared_by(const Block& block);
  Communicator* group(AxisSet axes) const;
  // Checks the next call. Null: there is nobody to make it with.
  Communicator* next(CallOp op, AxisSet axes, const Tensor& given);
  void make(const BlockCall& call);
  at::ScalarType dtype_of(const BlockCall& call) const;
  const std::vector<BlockCall>& declared() const;
  [[noreturn]] void refuse(const std::string& made) const;

  Options options_;
  std::vector<Declared> blocks_;
  int block_ = kNone;  // kNone: none runs
  BlockCall::When when_ = BlockCall::When::kForward;
  int64_t samples_ = 0;
  size_t made_ = 0;
  int64_t made_in_step_ = 0;
};

// ConfigError where blocks of a step call all data-parallel ranks inside: what they
// normalise with is known to the host, which does not wait for a device.
void require_no_data_calls(const Schedule& schedule);

}  // namespace cohort
