// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/linear_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saved targets are wrapped as IValues: a tensor, undefined where there is none.
Tensor weight_gradient(const Tensor& grad, const Tensor& input, Tensor target,
                       bool accumulate) {
  if (!target.defined()) return grad.t().mm(input);
  if (accumulate)
    target.addmm_(grad.t(), input);
  else
    at::mm_out(target, grad.t(), input);
  return target;
}

Tensor bias_gradient(const Tensor& grad, Tensor target, bool accumulate) {
  if (!target.defined()) return grad.sum(0);
  if (accumulate)
    target.add_(grad.sum(0));
  else
    at::sum_out(target, grad, 0);
  return target;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const Tensor& bias,
                        const GradTarget& weight_target,
                        const GradTarget& bias_target) {
    context->save_for_backward({input, weight});
    context->saved_data["weight_target"] = weight_target.view;
    context->saved_data["bias_target"] = bias_target.view;
    context->saved_data["accumulate_weight"] = weight_target.accumulate;
    context->saved_data["accumulate_bias"] = bias_target.accumulate;
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    // Rows of any leading dimensions are samples alike.
    const Tensor grad = grads[0].reshape({-1, grads[0].size(-1)});
    const Tensor input = saved[0].reshape({-1, saved[0].size(-1)});
    Tensor input_grad;
    if (context->needs_input_grad(0)) input_grad = grad.mm(saved[1]).view_as(saved[0]);
    return {input_grad,
            weight_gradient(grad, input, data["weight_target"].toTensor(),
                            data["accumulate_weight"].toBool()),
            bias_gradient(grad, data["bias_target"].toTensor(),
                          data["accumulate_bias"].toBool()),
            {},
            {}};
  }
};

}  // namespace

Tensor linear_with_targets(const Tensor& input, const Tensor& weight,
                           const Tensor& bias, GradTarget weight_target,
                           GradTarget bias_target) {
  for (const auto* target : {&weight_target, &bias_target})
    COHORT_CHECK(
        !target->view.defined() || target->view.scalar_type() == weight.scalar_type(),
        "a ", target->view.scalar_type(), " target for gradients of ",
        weight.scalar_type());
  return LinearFunction::apply(input, weight, bias, weight_target, bias_target);
}

}  // namespace cohort
