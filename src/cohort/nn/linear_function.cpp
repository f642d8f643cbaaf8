// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/linear_function.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/nn/saved_value.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearForm {
  WeightOrder order;
  int64_t padding = 0;  // rows of zeros behind those of the weight
};

struct LinearCells {
  GradCell weight, bias;
  LinearForm form;
};

// What is multiplied and added.
struct LinearOperands {
  LinearOperands(const Tensor& weight, const std::optional<Tensor>& bias,
                 const LinearForm& form)
      : weight(weight), bias(bias), order(form.order) {
    if (form.padding == 0) return;
    this->weight = at::constant_pad_nd(weight, {0, 0, 0, form.padding});
    if (bias) this->bias = at::constant_pad_nd(*bias, {0, form.padding});
  }
  Tensor times(const Tensor& input) const {
    return at::linear(input, order == WeightOrder::kOutIn ? weight : weight.t(), bias);
  }

  Tensor weight;
  std::optional<Tensor> bias;
  WeightOrder order;
};

// What was filled in meanwhile, if anything was.
GradTarget target_in(const GradCell& cell, const Tensor& grad) {
  if (!cell || !cell->view.defined()) return {};
  COHORT_CHECK(cell->view.scalar_type() == grad.scalar_type(), "a ",
               cell->view.scalar_type(), " target for gradients of ",
               grad.scalar_type());
  return *cell;
}

Tensor without(int64_t padding, const Tensor& rows) {
  return rows.narrow(0, 0, rows.size(0) - padding);
}

// The product itself is aligned, so it is made elsewhere.
Tensor placed(const Tensor& gradient, GradTarget target) {
  if (!target.view.defined()) return gradient;
  if (target.accumulate)
    target.view.add_(gradient);
  else
    target.view.copy_(gradient);
  return target.view;
}

// That of weights of `rows` times `columns`, both by samples.
Tensor weight_gradient(const Tensor& rows, const Tensor& columns, GradTarget target) {
  if (!target.view.defined()) return rows.t().mm(columns);
  if (target.accumulate)
    target.view.addmm_(rows.t(), columns);
  else
    at::mm_out(target.view, rows.t(), columns);
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

// Now, or in the second part of a backward; then it returns nothing.
template <typename Make>
Tensor now_or_later(const GradCell& cell, const Make& make) {
  if (!cell || !cell->later) return make();
  cell->later->emplace(cell.get(), make);
  return {};
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const std::optional<Tensor>& bias,
                        const GradCell& weight_cell, const GradCell& bias_cell,
                        const LinearForm& form) {
    const LinearOperands operands(weight, bias, form);
    context->save_for_backward({input, operands.weight});
    save_value(*context, "cells", LinearCells{weight_cell, bias_cell, form});
    context->saved_data["bias"] = bias.has_value();
    return operands.times(input);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto& cells = saved_value<LinearCells>(*context, "cells");
    // Rows of any leading dimensions are samples alike.
    const Tensor grad = grads[0].reshape({-1, grads[0].size(-1)});
    const Tensor input = saved[0].reshape({-1, saved[0].size(-1)});
    const bool by_rows = cells.form.order == WeightOrder::kOutIn;
    const int64_t padding = cells.form.padding;
    Tensor input_grad;
    if (context->needs_input_grad(0))
      input_grad = grad.mm(by_rows ? saved[1] : saved[1].t()).view_as(saved[0]);
    const auto weight = [=, cell = cells.weight] {
      const auto target = target_in(cell, grad);
      if (padding > 0) return placed(without(padding, grad.t().mm(input)), target);
      return by_rows ? weight_gradient(grad, input, target)
                     : weight_gradient(input, grad, target);
    };
    const auto bias = [=, cell = cells.bias] {
      const auto target = target_in(cell, grad);
      if (padding > 0) return placed(without(padding, grad.sum(0)), target);
      return bias_gradient(grad, target);
    };
    const Tensor weight_grad = now_or_later(cells.weight, weight);
    Tensor bias_grad;
    if (context->saved_data["bias"].toBool())
      bias_grad = now_or_later(cells.bias, bias);
    return {input_grad, weight_grad, bias_grad, {}, {}, {}};
  }
};

Tensor linear_of(const Tensor& given, const Tensor& weight, const Tensor& given_bias,
                 const LinearForm& form, Context& context) {
  const Tensor input = given.to(weight.scalar_type());
  const auto bias = given_bias.defined() ? std::optional(given_bias) : std::nullopt;
  if (!context.grads || !c10::GradMode::is_enabled())
    return LinearOperands(weight, bias, form).times(input);
  // In this order, which a call's arguments would not have with every compiler.
  GradCell weight_cell = context.grads->take(weight);
  GradCell bias_cell = bias ? context.grads->take(*bias) : nullptr;
  return LinearFunction::apply(input, weight, bias, weight_cell, bias_cell, form);
}

}  // namespace

Tensor linear_layer(const Tensor& input, const Tensor& weight, const Tensor& bias,
                    WeightOrder order, Context& context) {
  return linear_of(input, weight, bias, {.order = order}, context);
}

Tensor padded_linear_layer(const Tensor& input, const Tensor& weight,
                           const Tensor& bias, int64_t padding, Context& context) {
  return linear_of(input, weight, bias,
                   {.order = WeightOrder::kOutIn, .padding = padding}, context);
}

}  // namespace cohort
