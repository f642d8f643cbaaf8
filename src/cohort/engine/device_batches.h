// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cohort/engine/cuda/device_batch.h"
#include "cohort/engine/step_batches.h"
#include "cohort/step/gradient_target.h"

namespace cohort {

// In the memory of a device: all slices of a step are on their way before it begins.
class DeviceBatches final : public StepBatches {
 public:
  // Borrows lane and step.
  DeviceBatches(BatchOptions options, CudaLane& lane, StepInFlight& step);

  void begin(const StepInput& input) override;
  void begin_evaluation(const StepInput& input) override;
  const Batch& at(int slice) override;
  DeviceRandom* random(int slice) override;
  void clear() override { evaluated_.reset(); }

  // The slices of the step have the shapes of the first whole batch, and lie where its
  // slices lay.
  bool is_usual() const { return batch_.is_usual(); }

 private:
  DeviceBatch make(int slices) const;

  const BatchOptions options_;
  CudaLane& lane_;
  StepInFlight& step_;
  DeviceBatch batch_;
  std::optional<DeviceBatch> evaluated_;
};

}  // namespace cohort
