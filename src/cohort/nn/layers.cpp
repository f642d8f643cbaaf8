// SPDX-License-Identifier: Apache-2.0
#include "cohort/layers.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "cohort/nn/batch_norm_function.h"
#include "cohort/nn/conv_function.h"
#include "cohort/nn/cut_parameter.h"
#include "cohort/nn/linear_function.h"
#include "cohort/nn/sync_batch_norm.h"
#include "cohort/nn/wide_type.h"
#include "cohort/nn/without_memory.h"

namespace cohort {
namespace {

constexpr double kBatchNormMomentum = 0.1;
constexpr double kBatchNormEps = 1e-5;

// PyTorch's default for linear and convolution layers: weights and biases uniform in
// +-1/sqrt(fan_in) (kaiming_uniform with a = sqrt(5) gives the same bound).
FirstValue uniform(int64_t fan_in, uint64_t seed, const std::string& name) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return {.key = RandomKey::of_path(seed, name), .low = -bound, .high = bound};
}

Tensor widened(const Tensor& tensor) { return tensor.to(wide_type(tensor)); }

NormalizedBatch normalize(const Tensor& input, const Tensor& weight,
                          const Tensor& bias) {
  if (has_batch_norm_by_sums(input))
    return batch_norm_by_sums(input, weight, bias, kBatchNormEps);
  const auto [output, mean, invstd] = at::native_batch_norm(
      input, weight, bias, {}, {}, true, kBatchNormMomentum, kBatchNormEps);
  return {output, mean, invstd.detach().pow(-2).sub(kBatchNormEps)};
}

SyncedBatch of_slice(const NormalizedBatch& batch, const Tensor& input) {
  return {batch, static_cast<double>(input.numel() / input.size(1)), 1};
}

}  // namespace

Linear::Linear(TensorLists& tensors, const std::string& name, int64_t in, int64_t out,
               const LayerOptions& options)
    : weight_(tensors.add_parameter(
          name + ".weight",
          new_parameter({out, in}, uniform(in, options.seed, name + ".weight")))),
      bias_(tensors.add_parameter(
          name + ".bias",
          new_parameter({out}, uniform(in, options.seed, name + ".bias")))) {}

Tensor Linear::operator()(const Tensor& input, Context& context) const {
  return linear_layer(input, weight_, bias_, WeightOrder::kOutIn, context);
}

Conv2d::Conv2d(TensorLists& tensors, const std::string& name, int64_t in, int64_t out,
               const ConvOptions& shape, const LayerOptions& options)
    : shape_(shape) {
  const int64_t fan_in = in * shape.kernel * shape.kernel;
  weight_ = tensors.add_parameter(
      name + ".weight",
      new_parameter({out, in, shape.kernel, shape.kernel},
                    uniform(fan_in, options.seed, name + ".weight"),
                    options.channels_last ? at::MemoryFormat::ChannelsLast
                                          : at::MemoryFormat::Contiguous));
  if (shape.bias)
    bias_ = tensors.add_parameter(
        name + ".bias",
        new_parameter({out}, uniform(fan_in, options.seed, name + ".bias")));
}

Tensor Conv2d::operator()(const Tensor& input) const {
  return convolve(input.to(weight_.scalar_type()), weight_, bias_, shape_.stride,
                  shape_.padding);
}

BatchNorm2d::BatchNorm2d(TensorLists& tensors, const std::string& name,
                         int64_t channels, const LayerOptions& options)
    : is_synced_(options.sync_batch_norm),
      weight_(tensors.add_parameter(name + ".weight",
                                    new_parameter({channels}, all_equal_to(1)))),
      bias_(tensors.add_parameter(name + ".bias",
                                  new_parameter({channels}, all_equal_to(0)))),
      running_mean_(tensors.add_buffer(name + ".running_mean",
                                       at::zeros({channels}, new_layer_tensor()))),
      running_var_(tensors.add_buffer(name + ".running_var",
                                      at::ones({channels}, new_layer_tensor()))) {
  if (is_synced_) declare_sync_batch_norm(tensors, channels);
}

Tensor BatchNorm2d::operator()(const Tensor& input, Context& context) const {
  const Tensor weight = widened(weight_), bias = widened(bias_);
  if (context.phase == Phase::kEvaluate)
    return std::get<0>(at::native_batch_norm(input, weight, bias, running_mean_,
                                             running_var_, false, kBatchNormMomentum,
                                             kBatchNormEps));
  const SyncedBatch batch =
      is_synced_ && context.calls
          ? sync_batch_norm(input, weight, bias, kBatchNormEps, *context.calls)
          : of_slice(normalize(input, weight, bias), input);
  if (context.statistics) {
    const c10::NoGradGuard no_grad;
    const Tensor var = batch.var.mul(batch.count / std::max(1.0, batch.count - 1));
    // Slices that were normalised together bring the same, and are one update together.
    const double momentum =
        batch.slices == 1 ? kBatchNormMomentum
                          : 1 - std::pow(1 - kBatchNormMomentum, 1 / batch.slices);
    context.statistics->push_back({running_mean_, batch.mean.detach(), momentum});
    context.statistics->push_back({running_var_, var, momentum});
  }
  return batch.output;
}

WeightedLoss cross_entropy(const Values& outputs, const Tensor& target) {
  const Tensor logits = widened(outputs.at(0));
  WeightedLoss loss;
  loss.sum = at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum);
  loss.count = static_cast<double>(target.numel());
  if (!c10::GradMode::is_enabled())
    loss.correct = logits.argmax(1).eq(target).sum().item<double>();
  return loss;
}

Loss classifier_loss() {
  return {.function =
              [](const Values& outputs, const Values& fields) {
                return cross_entropy(outputs, fields.at(0));
              },
          .fields = {"target"},
          .metrics = {.accuracy = true}};
}

}  // namespace cohort
