// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/device_loss_scale.h"

#include <ATen/ATen.h>

namespace cohort {

DeviceLossScale::DeviceLossScale(const LossScaleOptions& options,
                                 at::ScalarType compute, at::Device device)
    : options_(options), is_used_(compute == at::kHalf) {
  if (is_used_) LossScale{options};  // refuses what cannot be
  const auto on = at::TensorOptions().device(device);
  scale_ = at::full({1}, is_used_ ? options.initial : 1.0, on.dtype(at::kFloat));
  good_steps_ = at::zeros({1}, on.dtype(at::kInt));
  seed_ = at::ones({}, on.dtype(at::kFloat));
}

void DeviceLossScale::begin_step(double count) {
  if (is_used_) seed_.copy_(scale_.squeeze(0) * mean_scale(count));
}

void DeviceLossScale::commit(const Tensor& gate, const Tensor& counts) {
  if (!is_used_) return;
  Tensor scale = scale_.clone(), good_steps = good_steps_.clone();
  at::_amp_update_scale_(scale, good_steps, (gate == 0).to(at::kFloat), options_.growth,
                         options_.backoff, options_.growth_steps);
  scale_.copy_(at::where(counts, scale, scale_));
  good_steps_.copy_(at::where(counts, good_steps, good_steps_));
}

std::string DeviceLossScale::saved() const {
  if (!is_used_) return "";
  LossScale scale(options_);
  scale.restore(scale_.item<double>(), good_steps_.item<int64_t>());
  return scale.saved();
}

void DeviceLossScale::restore(const std::string& text) {
  if (!is_used_ || text.empty()) return;
  LossScale scale(options_);
  scale.restore(text);
  scale_.fill_(scale.value());
  good_steps_.fill_(scale.good_steps());
}

}  // namespace cohort
