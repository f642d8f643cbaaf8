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

struct LinearCells {
  GradCell weight, bias;
  WeightOrder order;
};

Tensor product(const Tensor& input, const Tensor& weight,
               const std::optional<Tensor>& bias, WeightOrder order) {
  return at::linear(input, order == WeightOrder::kOutIn ? weight : weight.t(), bias);
}

// What was filled in meanwhile, if anything was.
GradTarget target_in(const GradCell& cell, const Tensor& grad) {
  if (!cell || !cell->view.defined()) return {};
  COHORT_CHECK(cell->view.scalar_type() == grad.scalar_type(), "a ",
               cell->view.scalar_type(), " target for gradients of ",
               grad.scalar_type());
  return *cell;
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
                        WeightOrder order) {
    context->save_for_backward({input, weight});
    save_value(*context, "cells", LinearCells{weight_cell, bias_cell, order});
    context->saved_data["bias"] = bias.has_value();
    return product(input, weight, bias, order);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto& cells = saved_value<LinearCells>(*context, "cells");
    // Rows of any leading dimensions are samples alike.
    const Tensor grad = grads[0].reshape({-1, grads[0].size(-1)});
    const Tensor input = saved[0].reshape({-1, saved[0].size(-1)});
    const bool by_rows = cells.order == WeightOrder::kOutIn;
    Tensor input_grad;
    if (context->needs_input_grad(0))
      input_grad = grad.mm(by_rows ? saved[1] : saved[1].t()).view_as(saved[0]);
    const auto weight = [=, cell = cells.weight] {
      const auto target = target_in(cell, grad);
      return by_rows ? weight_gradient(grad, input, target)
                     : weight_gradient(input, grad, target);
    };
    const auto bias = [=, cell = cells.bias] {
      return bias_gradient(grad, target_in(cell, grad));
    };
    const Tensor weight_grad = now_or_later(cells.weight, weight);
    Tensor bias_grad;
    if (context->saved_data["bias"].toBool())
      bias_grad = now_or_later(cells.bias, bias);
    return {input_grad, weight_grad, bias_grad, {}, {}, {}};
  }
};

}  // namespace

Tensor linear_layer(const Tensor& given, const Tensor& weight, const Tensor& given_bias,
                    WeightOrder order, Context& context) {
  const Tensor input = given.to(weight.scalar_type());
  const auto bias = given_bias.defined() ? std::optional(given_bias) : std::nullopt;
  if (!context.grads || !c10::GradMode::is_enabled())
    return product(input, weight, bias, order);
  // In this order, which a call's arguments would not have with every compiler.
  GradCell weight_cell = context.grads->take(weight);
  GradCell bias_cell = bias ? context.grads->take(*bias) : nullptr;
  return LinearFunction::apply(input, weight, bias, weight_cell, bias_cell, order);
}

}  // namespace cohort
