// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/engine/cuda/sample_keys.h"

namespace cohort {

// The same batch where a copy to `device` waits for nothing: in pinned memory, for a
// GPU. A thread that makes batches calls it itself.
Batch pinned(Batch batch, at::Device device);

// One slice of a batch in device memory, with the keys of its samples.
struct DeviceSlice {
  Batch samples;
  std::unique_ptr<SampleKeys> keys;  // null: no slice was ever there
};

// A rank's slices of the batch at hand. The shapes of the first whole batch are the
// usual ones: slices of such a shape always lie in the same memory, where a captured
// step reads them. Others, of a short last batch, get memory of their own.
class DeviceBatch {
 public:
  // `rounded`: fields that are computed with in `compute`, if they are no integers.
  DeviceBatch(CudaLane& lane, at::ScalarType compute, std::vector<std::string> rounded,
              uint64_t seed, int slices);

  // Starts the transfer; the memory of `batch` may go when it is done (LibTorch sees to
  // that for pinned memory; of other memory it waits).
  void load(int slice, int64_t step, const Batch& batch, bool whole = true);

  DeviceSlice& slice(int index) { return *at_hand_[index]; }
  bool is_usual() const;

 private:
  void fill(DeviceSlice& slice, int64_t step, const Batch& batch) const;
  Tensor room_for(const std::string& field, const Tensor& given) const;

  CudaLane& lane_;
  at::Device device_;
  at::ScalarType compute_;
  std::vector<std::string> rounded_;
  uint64_t seed_;
  std::vector<DeviceSlice> usual_, odd_;
  std::vector<DeviceSlice*> at_hand_;
};

}  // namespace cohort
