// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/conv_function.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// On 64-bit Arm oneDNN has fast kernels for forward alone; its backward is a loop of
// plain C++, 1.3 to 4 times slower than unfolding and a BLAS product. On x86 it is the
// other way round.
#if defined(__aarch64__)
constexpr bool kBlasBackward = true;
#else
constexpr bool kBlasBackward = false;
#endif

// oneDNN's kernel for the weight gradient of a 1x1 convolution with a stride writes
// past its buffer if there are fewer than 8 input channels. Only processors without
// AVX-512 use it (LibTorch 2.11, also from Python).
bool overruns_in_onednn(const Tensor& weight, int64_t stride) {
#if defined(__x86_64__)
  constexpr int64_t kBlock = 8;  // channels that the kernel takes at once
  return stride > 1 && weight.size(2) == 1 && weight.size(3) == 1 &&
         weight.size(1) < kBlock && !__builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

struct ConvFunction : torch::autograd::Function<ConvFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const Tensor& weight, const std::optional<Tensor>& bias,
                        int64_t stride, int64_t padding) {
    context->save_for_backward({input, weight});
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::conv2d(input, weight, bias, stride, padding);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& weight = saved[1];
    const std::array<int64_t, 2> kernel = {weight.size(2), weight.size(3)};
    const int64_t stride = context->saved_data["stride"].toInt();
    const int64_t padding = context->saved_data["padding"].toInt();
    const std::array<bool, 3> wanted = {context->needs_input_grad(0),
                                        context->needs_input_grad(1),
                                        context->saved_data["bias"].toBool()};
    auto [input_grad, weight_grad, bias_grad] =
        at::_slow_conv2d_backward(grads[0], saved[0], weight, kernel, {stride, stride},
                                  {padding, padding}, wanted);
    return {input_grad, weight_grad, bias_grad, {}, {}};
  }
};

// What is only counted takes the way of the host, which it stands for.
bool is_for_host(const Tensor& tensor) { return tensor.is_cpu() || tensor.is_meta(); }

// Images of one channel are of both memory formats at once. LibTorch takes them for the
// one whose pooling is many times slower, and what follows has to be turned round,
// unless the stride that no element is reached by says otherwise.
Tensor by_channels(const Tensor& images) {
  const bool either = !kBlasBackward && is_for_host(images) && images.size(1) == 1 &&
                      images.is_contiguous();
  if (!either) return images;
  const int64_t height = images.size(2), width = images.size(3);
  return images.as_strided(images.sizes(), {height * width, 1, width, 1});
}

}  // namespace

Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias,
                int64_t stride, int64_t padding) {
  const bool ours = (kBlasBackward || overruns_in_onednn(weight, stride)) &&
                    c10::GradMode::is_enabled() && is_for_host(input) &&
                    input.scalar_type() == at::kFloat;
  if (!ours) return at::conv2d(by_channels(input), weight, bias, stride, padding);
  return ConvFunction::apply(input, weight,
                             bias.defined() ? std::optional(bias) : std::nullopt,
                             stride, padding);
}

}  // namespace cohort
