// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/batch_norm_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In two stages, images first: one reduction over all would leave most of the GPU idle.
std::pair<Tensor, Tensor> mean_and_variance(const Tensor& input) {
  const int64_t channels = input.size(1);
  const Tensor rows =
      input.permute({0, 2, 3, 1}).reshape({input.size(0), -1, channels});
  const Tensor mean = rows.mean(at::IntArrayRef{1}, false, at::kFloat)
                          .mean(at::IntArrayRef{0}, false, at::kFloat);
  const Tensor norms =
      at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, at::kFloat);
  const auto samples = static_cast<double>(input.numel() / channels);
  const Tensor var = at::linalg_vector_norm(norms, 2, at::IntArrayRef{0})
                         .mul_(1 / std::sqrt(samples))
                         .square_()
                         .addcmul_(mean, mean, -1)
                         .clamp_min_(0);
  return {mean, var};
}

// Forward and backward by the kernels that LibTorch's synchronised batch norm is made
// of.
struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& input,
                               const Tensor& weight, const Tensor& bias, double eps) {
    const auto [mean, var] = mean_and_variance(input);
    const Tensor invstd = var.add(eps).rsqrt_();
    context->save_for_backward({input, weight, mean, invstd});
    context->mark_non_differentiable({mean, var});
    return {at::batch_norm_elemt(input, weight, bias, mean, invstd, eps), mean, var};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& input = saved[0];
    const Tensor grad = grads[0].contiguous(input.suggest_memory_format());
    const auto [sum, sum_xmu, weight_grad, bias_grad] = at::batch_norm_backward_reduce(
        grad, input, saved[2], saved[3], saved[1], true, true, true);
    const Tensor count =
        at::full({1}, input.numel() / input.size(1), input.options().dtype(at::kInt));
    const Tensor input_grad = at::batch_norm_backward_elemt(
        grad, input, saved[2], saved[3], saved[1], sum, sum_xmu, count);
    return {input_grad, weight_grad, bias_grad, {}};
  }
};

}  // namespace

bool has_batch_norm_by_sums(const Tensor& input) {
  const auto dtype = input.scalar_type();
  return input.is_cuda() && input.dim() == 4 &&
         (dtype == at::kBFloat16 || dtype == at::kHalf);
}

NormalizedBatch batch_norm_by_sums(const Tensor& input, const Tensor& weight,
                                   const Tensor& bias, double eps) {
  const auto parts = BatchNormFunction::apply(input, weight, bias, eps);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace cohort
