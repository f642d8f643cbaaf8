// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/device_batch.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

// From pinned memory a copy needs not wait for the device.
Tensor pinned_copy(const Tensor& tensor, at::Device device) {
  const bool moves = device.is_cuda() && tensor.is_cpu();
  return moves && !tensor.is_pinned() ? tensor.pin_memory() : tensor;
}

bool same_shapes(const Batch& a, const Batch& b) {
  return a.count == b.count &&
         std::ranges::equal(a.fields, b.fields, [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.sizes() == y.second.sizes();
         });
}

}  // namespace

// Under the device's context, which must not be that of another GPU.
Batch pinned(Batch batch, at::Device device) {
  if (!device.is_cuda()) return batch;
  const c10::DeviceGuard guard(device);
  for (auto& field : batch.fields) field.second = pinned_copy(field.second, device);
  return batch;
}

DeviceBatch::DeviceBatch(CudaLane& lane, at::ScalarType compute,
                         std::vector<std::string> rounded, uint64_t seed, int slices)
    : lane_(lane),
      device_(lane.device()),
      compute_(compute),
      rounded_(std::move(rounded)),
      seed_(seed),
      usual_(slices),
      odd_(slices),
      at_hand_(slices, nullptr) {
  for (int i = 0; i < slices; ++i) at_hand_[i] = &usual_[i];
}

void DeviceBatch::load(int slice, int64_t step, const Batch& batch, bool whole) {
  const bool usual =
      whole && (!usual_[slice].keys || same_shapes(usual_[slice].samples, batch));
  at_hand_[slice] = usual ? &usual_[slice] : &odd_[slice];
  if (!usual) odd_[slice] = {};
  fill(*at_hand_[slice], step, batch);
}

Tensor DeviceBatch::room_for(const std::string& field, const Tensor& given) const {
  const bool rounds =
      given.is_floating_point() && std::ranges::find(rounded_, field) != rounded_.end();
  return at::empty(
      given.sizes(),
      at::TensorOptions(rounds ? compute_ : given.scalar_type()).device(device_),
      given.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

void DeviceBatch::fill(DeviceSlice& slice, int64_t step, const Batch& batch) const {
  const c10::NoGradGuard no_grad;
  if (!slice.keys) {
    for (const auto& [name, given] : batch.fields)
      slice.samples.fields[name] = room_for(name, given);
    slice.keys = std::make_unique<SampleKeys>(lane_, seed_);
  }
  slice.samples.count = batch.count;
  slice.samples.ids = batch.ids;
  slice.keys->begin(step, batch.ids);
  for (auto& [name, there] : slice.samples.fields) {
    const Tensor given = pinned_copy(batch.at(name), device_);
    // Rounded and reordered on the device: it is faster at that.
    const bool changes = there.scalar_type() != given.scalar_type() || there.dim() == 4;
    there.copy_(changes ? given.to(device_, /*non_blocking=*/true) : given,
                /*non_blocking=*/true);
  }
}

bool DeviceBatch::is_usual() const {
  for (size_t i = 0; i < at_hand_.size(); ++i)
    if (at_hand_[i] != &usual_[i]) return false;
  return true;
}

}  // namespace cohort
