// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/module_backward.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <utility>

#include "cohort/core/error.h"
#include "cohort/engine/agreement.h"

namespace cohort {
// Tells the wrapper that autograd has put a gradient into parameter.grad().
struct ModuleBackward::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(ModuleBackward& owner, size_t index) : owner(owner), index(index) {}
  // Autograd has a thread for each device.
  void operator()(const Tensor&) override {
    const std::lock_guard lock(owner.arrives_);
    owner.has_gradient_[index] = true;
    owner.on_gradient_(index);
  }
  ModuleBackward& owner;
  size_t index;
};

ModuleBackward::ModuleBackward(torch::nn::Module& module, Communicator& comm,
                               std::string who, std::function<void(size_t)> on_gradient)
    : comm_(comm), who_(std::move(who)), on_gradient_(std::move(on_gradient)) {
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) parameters_.push_back({item.key(), item.value()});
  if (parameters_.empty())
    throw ConfigError(
        text("[engine] ", who_, ": the module has no parameter to train"));
  require_equal(comm_, form_of(parameters_), "model (names, shapes and dtypes)");
  for (const auto& item : module.named_parameters())
    take_values(comm_, item.value(), 0);
  for (const auto& item : module.named_buffers()) take_values(comm_, item.value(), 0);
  has_gradient_.assign(parameters_.size(), false);
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<Hook>(*this, i));
}

ModuleBackward::~ModuleBackward() {
  for (auto& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
}

void ModuleBackward::begin_part() {
  if (std::exchange(in_step_, true)) return;
  sum_ = count_ = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad().reset();
    has_gradient_[i] = false;
  }
}

void ModuleBackward::run(const WeightedLoss& loss) {
  const double count = loss.count_here();
  count_ += count;
  if (!loss.sum.defined() || count == 0) return;
  sum_ += loss.sum.item<double>();
  loss.sum.backward();
}

ModuleBackward::Totals ModuleBackward::end_step() {
  in_step_ = false;
  Tensor sums = at::empty({2 + static_cast<int64_t>(parameters_.size())}, at::kDouble);
  double* values = sums.data_ptr<double>();
  values[0] = sum_;
  values[1] = count_;
  for (size_t i = 0; i < parameters_.size(); ++i) values[2 + i] = has_gradient_[i];
  comm_.all_reduce(sums, ReduceOp::kSum).wait();
  if (values[1] == 0)
    throw ConfigError(text("[engine] ", who_, ": no rank had a sample in this step"));
  Totals totals{.mean = values[0] / values[1], .count = values[1]};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    totals.used.push_back(values[2 + i] > 0);
    if (!totals.used.back()) totals.unused.push_back(parameters_[i].name);
  }
  return totals;
}

WeightedLoss weighted(const Tensor& mean, int64_t count) {
  const auto samples = static_cast<double>(count);
  return {mean * samples, samples};
}

}  // namespace cohort
