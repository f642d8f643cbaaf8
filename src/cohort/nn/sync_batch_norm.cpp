// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/sync_batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "cohort/nn/saved_value.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> all_but_channels(const Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

// One number per channel, in the form of the input.
Tensor along_channels(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.to(at::kFloat).view(shape);
}

// Sums over the ranks: of the elements and of their squares, by channel, of their
// number, and of slices. In float64, so that a variance is not lost in the square of a
// large mean.
Tensor summed(const Tensor& input, BlockCalls& calls) {
  const int64_t channels = input.size(1);
  const auto [var, mean] =
      at::var_mean(input.to(at::kFloat), all_but_channels(input), 0, false);
  const Tensor wide_mean = mean.to(at::kDouble);
  const auto count = static_cast<double>(input.numel() / channels);
  const auto one = [&](double value) {
    return at::full({1}, value, wide_mean.options());
  };
  Tensor sums = at::cat({wide_mean.mul(count),
                         var.to(at::kDouble).addcmul(wide_mean, wide_mean).mul(count),
                         one(count), one(1)});
  calls.all_reduce(kDataAxes, sums);
  return sums;
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& input,
                               const Tensor& weight, const Tensor& bias, double eps,
                               BlockCalls* calls) {
    const int64_t channels = input.size(1);
    const Tensor sums = summed(input, *calls);
    const Tensor count = sums.narrow(0, 2 * channels, 1);
    const Tensor wide_mean = sums.narrow(0, 0, channels).div(count);
    const Tensor squares = sums.narrow(0, channels, channels).div(count);
    const Tensor var =
        squares.addcmul(wide_mean, wide_mean, -1).clamp_min_(0).to(at::kFloat);
    const Tensor mean = wide_mean.to(at::kFloat);
    context->save_for_backward({input, weight, mean, var.add(eps).rsqrt_(), count});
    save_value(*context, "calls", calls);
    const Tensor numbers = sums.narrow(0, 2 * channels, 2);
    context->mark_non_differentiable({mean, var, numbers});
    const Tensor output = std::get<0>(
        at::native_batch_norm(input, weight, bias, mean, var, false, 0, eps));
    return {output, mean, var, numbers};
  }

  // Gradients of weight and bias are this slice's: the step sums them over ranks.
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& input = saved[0];
    const auto dims = all_but_channels(input);
    const Tensor grad = grads[0].to(at::kFloat);
    const Tensor deviation = along_channels(saved[3], input);
    const Tensor normal =
        input.to(at::kFloat).sub(along_channels(saved[2], input)).mul_(deviation);
    const Tensor bias_grad = grad.sum(dims);
    const Tensor weight_grad = grad.mul(normal).sum(dims);
    Tensor means = at::cat({bias_grad, weight_grad}).to(at::kDouble);
    saved_value<BlockCalls*>(*context, "calls")->all_reduce(kDataAxes, means);
    means.div_(saved[4]);
    const auto halves = means.chunk(2);
    const Tensor input_grad = grad.sub(along_channels(halves[0], input))
                                  .sub_(normal.mul(along_channels(halves[1], input)))
                                  .mul_(deviation)
                                  .mul_(along_channels(saved[1], input));
    return {input_grad.to(input.scalar_type()), weight_grad, bias_grad, {}, {}};
  }
};

}  // namespace

SyncedBatch sync_batch_norm(const Tensor& input, const Tensor& weight,
                            const Tensor& bias, double eps, BlockCalls& calls) {
  const auto parts = SyncBatchNormFunction::apply(input, weight, bias, eps, &calls);
  SyncedBatch batch{{parts[0], parts[1], parts[2]}, 1, 1};
  if (parts[3].is_meta()) return batch;  // nothing is computed: nothing to read
  batch.count = parts[3][0].item<double>();
  batch.slices = parts[3][1].item<double>();
  return batch;
}

void declare_sync_batch_norm(TensorLists& tensors, int64_t channels) {
  tensors.forward_calls.push_back({.when = BlockCall::When::kForward,
                                   .dtype = at::kDouble,
                                   .numel = 2 * channels + 2});
  tensors.backward_calls.push_back({.when = BlockCall::When::kBackward,
                                    .dtype = at::kDouble,
                                    .numel = 2 * channels});
}

}  // namespace cohort
