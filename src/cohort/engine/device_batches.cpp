// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/device_batches.h"

#include <utility>

#include "cohort/engine/timed.h"
#include "cohort/step/gradient_target.h"

namespace cohort {

DeviceBatches::DeviceBatches(BatchOptions options, CudaLane& lane, StepInFlight& step)
    : options_(std::move(options)),
      lane_(lane),
      step_(step),
      batch_(make(options_.slices)) {}

DeviceBatch DeviceBatches::make(int slices) const {
  return DeviceBatch(lane_, options_.compute, options_.rounded, options_.seed, slices);
}

void DeviceBatches::begin(const StepInput& input) {
  Timed timed(step_.split.data);
  evaluated_.reset();
  for (int slice = 0; slice < options_.slices; ++slice) {
    const Batch given = input.batch(options_.first_slice + slice);
    if (options_.draws) step_.sums.draw(input.sample_key, given.ids);
    batch_.load(slice, input.step, given, input.whole);
  }
}

void DeviceBatches::begin_evaluation(const StepInput& input) {
  evaluated_.emplace(make(1));
  evaluated_->load(0, input.step, input.batch(0));
}

const Batch& DeviceBatches::at(int slice) {
  return (evaluated_ ? *evaluated_ : batch_).slice(slice).samples;
}

DeviceRandom* DeviceBatches::random(int slice) {
  return evaluated_ ? nullptr : batch_.slice(slice).keys.get();
}

}  // namespace cohort
