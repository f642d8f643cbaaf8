// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/linear_function.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Cells, in the form in which autograd keeps what is no tensor.
struct LinearCells final : torch::CustomClassHolder {
  LinearCells(GradCell weight, GradCell bias)
      : weight(std::move(weight)), bias(std::move(bias)) {}
  GradCell weight, bias;
};

// What was filled in meanwhile, if anything was.
GradTarget target_in(const GradCell& cell, const Tensor& grad) {
  if (!cell || !cell->view.defined()) return {};
  COHORT_CHECK(cell->view.scalar_type() == grad.scalar_type(), "a ",
               cell->view.scalar_type(), " target for gradients of ",
               grad.scalar_type());
  return *cell;
}

Tensor weight_gradient(const Tensor& grad, const Tensor& input, GradTarget target) {
  if (!target.view.defined()) return grad.t().mm(input);
  if (target.accumulate)
    target.view.addmm_(grad.t(), input);
  else
    at::mm_out(target.view, grad.t(), input);
  return target.view;
}

Tensor bias_gradient(const Tensor& grad, GradTarget target) {
  if (!target.view.defined()) return grad.sum(0);
  if (target.accumulate)
    target.view.add_(grad.sum(0));
  else
    at::sum_out(target.view, grad, 0);
  return target.view;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const Tensor& bias,
                        const GradCell& weight_cell, const GradCell& bias_cell) {
    context->save_for_backward({input, weight});
    context->saved_data["cells"] = c10::IValue::make_capsule(
        c10::make_intrusive<LinearCells>(weight_cell, bias_cell));
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto kept = context->saved_data["cells"].toCapsule();
    const auto& cells = static_cast<const LinearCells&>(*kept);
    // Rows of any leading dimensions are samples alike.
    const Tensor grad = grads[0].reshape({-1, grads[0].size(-1)});
    const Tensor input = saved[0].reshape({-1, saved[0].size(-1)});
    Tensor input_grad;
    if (context->needs_input_grad(0)) input_grad = grad.mm(saved[1]).view_as(saved[0]);
    return {input_grad,
            weight_gradient(grad, input, target_in(cells.weight, grad)),
            bias_gradient(grad, target_in(cells.bias, grad)),
            {},
            {}};
  }
};

}  // namespace

Tensor linear_with_cells(const Tensor& input, const Tensor& weight, const Tensor& bias,
                         GradCell weight_cell, GradCell bias_cell) {
  return LinearFunction::apply(input, weight, bias, weight_cell, bias_cell);
}

}  // namespace cohort
