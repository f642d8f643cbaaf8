// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/fused_update.h"

#include <ATen/ATen.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

template <typename Ranges>
std::vector<Tensor> pieces(const Tensor& flat, const Ranges& ranges) {
  std::vector<Tensor> list;
  for (const auto& range : ranges)
    list.push_back(flat.narrow(0, range.begin, range.count));
  return list;
}

}  // namespace

FusedUpdate::FusedUpdate(const UpdateOptions& options, const Tensor& master)
    : options_(options), master_(master) {
  const auto rule = make_update_rule(options);  // refuses what there is not
  if (options.name == "sgd") apply_ = &FusedUpdate::sgd;
  if (options.name == "adam") apply_ = &FusedUpdate::adam;
  if (options.name == "adamw") apply_ = &FusedUpdate::adamw;
  if (!apply_)
    throw ConfigError(text("[engine] optimizer '", options.name,
                           "' has no kernel for GPUs; legal: sgd, adam, adamw, or an "
                           "update by the host, as with several ranks, --exact or "
                           "step.offload=optimizer"));
  for (size_t i = 0; i < rule->states().size(); ++i)
    states_.push_back(at::zeros_like(master));
}

void FusedUpdate::add_range(int64_t begin, int64_t count, double weight_decay) {
  auto& ranges = ranges_[weight_decay];
  if (!ranges.empty() && ranges.back().begin + ranges.back().count == begin)
    ranges.back().count += count;
  else
    ranges.push_back({begin, count});
}

void FusedUpdate::apply(const Tensor& gradient, const StepControl& control) {
  for (const auto& [decay, ranges] : ranges_)
    (this->*apply_)(ranges, decay, gradient, control);
}

// A velocity of zeros makes the first step like every other.
void FusedUpdate::sgd(const std::vector<Range>& ranges, double decay,
                      const Tensor& gradient, const StepControl& control) {
  const std::vector<Tensor> velocity =
      states_.empty() ? std::vector<Tensor>{} : pieces(states_[0], ranges);
  at::_fused_sgd_(pieces(master_, ranges), pieces(gradient, ranges), velocity, decay,
                  options_.momentum, control.rate, /*dampening=*/0, options_.nesterov,
                  /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{},
                  control.skip);
}

void FusedUpdate::adam(const std::vector<Range>& ranges, double decay,
                       const Tensor& gradient, const StepControl& control) {
  at::_fused_adam_(
      pieces(master_, ranges), pieces(gradient, ranges), pieces(states_[0], ranges),
      pieces(states_[1], ranges), {}, std::vector<Tensor>(ranges.size(), control.step),
      control.rate, options_.beta1, options_.beta2, decay, options_.eps,
      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, control.skip);
}

void FusedUpdate::adamw(const std::vector<Range>& ranges, double decay,
                        const Tensor& gradient, const StepControl& control) {
  at::_fused_adamw_(
      pieces(master_, ranges), pieces(gradient, ranges), pieces(states_[0], ranges),
      pieces(states_[1], ranges), {}, std::vector<Tensor>(ranges.size(), control.step),
      control.rate, options_.beta1, options_.beta2, decay, options_.eps,
      /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, control.skip);
}

}  // namespace cohort
