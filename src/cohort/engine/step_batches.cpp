// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_batches.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/engine/timed.h"

namespace cohort {

HostBatches::HostBatches(BatchOptions options, StepInFlight& step)
    : options_(std::move(options)), step_(step) {}

void HostBatches::begin(const StepInput& input) {
  input_ = &input;
  evaluates_ = false;
  batches_.clear();
}

void HostBatches::begin_evaluation(const StepInput& input) {
  begin(input);
  evaluates_ = true;
}

const Batch& HostBatches::at(int slice) {
  if (const auto it = batches_.find(slice); it != batches_.end()) return it->second;
  Timed timed(step_.split.data);
  Batch batch = input_->batch(options_.first_slice + slice);
  if (!evaluates_ && options_.draws) step_.sums.draw(input_->sample_key, batch.ids);
  for (const auto& name : options_.rounded)
    if (const auto it = batch.fields.find(name);
        it != batch.fields.end() && it->second.is_floating_point())
      it->second = it->second.to(options_.compute);
  return batches_[slice] = std::move(batch);
}

}  // namespace cohort
