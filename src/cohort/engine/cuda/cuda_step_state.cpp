// SPDX-License-Identifier: Apache-2.0
// What a step on a GPU keeps between steps, for whoever saves it.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "cohort/engine/cuda/cuda_step.h"

namespace cohort {

std::vector<NamedTensor> CudaStep::weights() {
  std::vector<NamedTensor> all;
  lane_->run([&] {
    const c10::NoGradGuard no_grad;
    const Tensor host = master_.to(at::kCPU, at::kFloat, false, /*copy=*/true);
    for (const auto& place : places_)
      all.push_back({place.name, FlatState::view(host, place)});
    for (const auto& [name, tensor] : buffers_)
      all.push_back({name, tensor.to(at::kCPU, at::kFloat, false, /*copy=*/true)});
  });
  return all;
}

std::vector<StatePiece> CudaStep::state() {
  wait();
  std::vector<StatePiece> pieces;
  const ShareRange all{0, numel_};
  const auto rule = make_update_rule(options_.update);
  for (const auto& place : places_) {
    add_piece(pieces, place, place.name, TensorKind::kParameter, master_, 0, all);
    for (size_t i = 0; i < update_->states().size(); ++i)
      add_piece(pieces, place, moment_name(rule->states()[i].name, place.name),
                TensorKind::kMoment, update_->states()[i], 0, all);
  }
  for (const auto& [name, tensor] : frozen_)
    pieces.push_back({{.spec = spec_of(name, tensor), .order = memory_order(tensor)},
                      tensor.detach().as_strided({tensor.numel()}, {1})});
  for (const auto& [name, tensor] : buffers_)
    pieces.push_back({{.spec = spec_of(name, tensor), .kind = TensorKind::kBuffer},
                      tensor.detach().view({-1})});
  return pieces;
}

void CudaStep::refresh() {
  lane_->run([&] {
    const c10::NoGradGuard no_grad;
    if (whole_.data_ptr() != master_.data_ptr()) whole_.copy_(master_);
  });
  wait();
}

std::string CudaStep::small_state() {
  if (options_.compute != at::kHalf) return "";
  wait();
  LossScale scale(options_.loss_scale);
  scale.restore(control_.loss_scale.item<double>(),
                control_.good_steps.item<int64_t>());
  return scale.saved();
}

void CudaStep::set_small_state(const std::string& text) {
  if (options_.compute != at::kHalf || text.empty()) return;
  LossScale scale(options_.loss_scale);
  scale.restore(text);
  control_.loss_scale.fill_(scale.value());
  control_.good_steps.fill_(scale.good_steps());
  wait();
}

}  // namespace cohort
