// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "cohort/block.h"
#include "cohort/communicator.h"

namespace cohort {

// The running statistics of a chain on a device, as one memory that its buffers become
// views of. What slices learned is folded in order, beside them, and taken over if a
// word in the device's memory says so: nothing is waited for. Thread safety: none.
class RunningStatistics {
 public:
  RunningStatistics(const Chain& chain, at::Device device);

  // One slice after another, as if each had been a step. `rows`: slices of the rank
  // that has most. `comm`: all that learned something; null: this rank alone.
  void fold(const std::vector<Statistic>& learned, int rows, Communicator* comm);
  // The buffers become what was folded, where `gate` (an int32) is not 0.
  void commit(const Tensor& gate);

 private:
  // How much of each element stays, and what it takes of a slice; all, and nothing,
  // where that has nothing to say.
  struct Weights {
    Tensor kept, taken;
  };

  Tensor row_of(const std::vector<const Statistic*>& found) const;
  const Weights& weights_of(const std::vector<const Statistic*>& found);

  std::vector<NamedTensor> buffers_;
  std::unordered_map<const void*, size_t> index_;
  Tensor running_, folded_;
  // By momenta. None is ever replaced: a captured step reads them where they are.
  std::map<std::vector<double>, Weights> weights_;
};

}  // namespace cohort
