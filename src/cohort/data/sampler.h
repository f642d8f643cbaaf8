// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/data/sample_sum.h"
#include "cohort/step/slices.h"

namespace cohort {

// Where a run stands: `step` counts global batches within `epoch`. Together with the
// sampler's options it is all that is needed to go on, at any world size.
struct Position {
  int64_t epoch = 0;
  int64_t step = 0;

  bool operator==(const Position&) const = default;
};

struct SamplerOptions {
  int64_t size = 0;   // samples of the data set
  int64_t batch = 1;  // samples of a global batch
  // Parts of a global batch, fixed for the whole run. A slice is what is computed
  // at once; ranks only differ in how many they take.
  int slices = 1;
  uint64_t seed = 0;
};

// The order of samples of a run, the same at every world size.
//
// Batch `step` of an epoch is places [step * batch, (step + 1) * batch) of the epoch's
// keyed permutation; the last batch may be short and is kept. A batch of m samples is
// cut into contiguous slices, the first m % slices of them longer by one; slices of a
// short batch may be empty.
//
// Thread safety: immutable.
class Sampler {
 public:
  // ConfigError for a size, batch or number of slices below 1.
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  int64_t steps_per_epoch() const;

  // The position of the `step`-th batch of the run, and back.
  Position position(int64_t step) const;
  int64_t step(Position position) const;

  // Number of samples in the global batch.
  int64_t batch_size(Position position) const;
  // As many as batches usually have.
  bool is_whole(Position position) const;

  // What all ranks together must draw for it, whatever its slices are.
  SampleSum batch_sum(Position position) const;

  // Sample ids of one slice of that batch, in order.
  std::vector<int64_t> slice(Position position, int slice_index) const;

 private:
  SamplerOptions options_;
};

}  // namespace cohort
