// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_batch.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace cohort {
namespace {

// In pinned memory a copy needs not wait for the device.
Tensor pinned(const Tensor& tensor, at::Device device) {
  return device.is_cuda() && !tensor.is_pinned() ? tensor.pin_memory() : tensor;
}

}  // namespace

DeviceBatch::DeviceBatch(CudaLane& lane, at::ScalarType compute, uint64_t seed,
                         int slices)
    : lane_(lane),
      device_(lane.device()),
      compute_(compute),
      seed_(seed),
      usual_(slices),
      odd_(slices),
      at_hand_(slices, nullptr) {
  for (int i = 0; i < slices; ++i) at_hand_[i] = &usual_[i];
}

void DeviceBatch::load(int slice, int64_t step, const Batch& batch) {
  const bool usual = !usual_[slice].input.defined() ||
                     usual_[slice].input.sizes() == batch.input.sizes();
  at_hand_[slice] = usual ? &usual_[slice] : &odd_[slice];
  if (!usual) odd_[slice] = {};
  fill(*at_hand_[slice], step, batch);
}

void DeviceBatch::fill(DeviceSlice& slice, int64_t step, const Batch& batch) const {
  const c10::NoGradGuard no_grad;
  if (!slice.input.defined()) {
    const bool images = batch.input.dim() == 4;
    const auto dtype =
        batch.input.is_floating_point() ? compute_ : batch.input.scalar_type();
    slice.input = at::empty(
        batch.input.sizes(), at::TensorOptions(dtype).device(device_),
        images ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
    if (batch.target.defined())
      slice.target =
          at::empty(batch.target.sizes(), batch.target.options().device(device_));
    slice.keys = std::make_unique<SampleKeys>(lane_, seed_);
  }
  slice.ids = batch.ids;
  slice.keys->begin(step, batch.ids);
  // Rounded and reordered on the device: it is faster at that.
  slice.input.copy_(pinned(batch.input, device_).to(device_, /*non_blocking=*/true));
  if (slice.target.defined())
    slice.target.copy_(pinned(batch.target, device_), /*non_blocking=*/true);
}

int64_t DeviceBatch::rows() const {
  int64_t sum = 0;
  for (const auto* slice : at_hand_) sum += slice->rows();
  return sum;
}

bool DeviceBatch::is_usual() const {
  for (size_t i = 0; i < at_hand_.size(); ++i)
    if (at_hand_[i] != &usual_[i]) return false;
  return true;
}

}  // namespace cohort
