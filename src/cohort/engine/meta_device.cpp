// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/meta_device.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "cohort/core/memory.h"
#include "cohort/tensor.h"

namespace cohort {
namespace {

// How many bytes a storage that has none would have.
struct ToldBytes {
  explicit ToldBytes(size_t size) : bytes(static_cast<int64_t>(size)) {
    report_memory(nullptr, bytes);
  }
  ~ToldBytes() { report_memory(nullptr, -bytes); }
  ToldBytes(const ToldBytes&) = delete;
  ToldBytes& operator=(const ToldBytes&) = delete;
  int64_t bytes;
};

class MetaMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return {nullptr, new ToldBytes(bytes), &forget, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  static void forget(void* told) { delete static_cast<ToldBytes*>(told); }
};

at::MemoryFormat image_format(const Tensor& input, const Tensor& weight) {
  const bool last = input.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
                    weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

Tensor meta_relu(const Tensor& input) { return at::empty_like(input); }

// For images (N, C, H, W).
Tensor meta_convolution(const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>&, at::IntArrayRef stride,
                        at::IntArrayRef padding, at::IntArrayRef dilation,
                        bool transposed, at::IntArrayRef, int64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(!transposed && input.dim() == 4,
                              "counted are 2-d convolutions alone");
  std::vector<int64_t> shape{input.size(0), weight.size(0)};
  for (size_t i = 0; i < 2; ++i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    const int64_t kernel = dilation[i] * (weight.size(dim) - 1) + 1;
    shape.push_back((input.size(dim) + 2 * padding[i] - kernel) / stride[i] + 1);
  }
  return at::empty(shape, input.options(), image_format(input, weight));
}

using ThreeGradients = std::tuple<Tensor, Tensor, Tensor>;

ThreeGradients convolution_gradients(const Tensor& grad, const Tensor& input,
                                     const Tensor& weight, std::array<bool, 3> wanted) {
  const auto format = image_format(input, weight);
  ThreeGradients out;
  if (wanted[0]) std::get<0>(out) = at::empty(input.sizes(), input.options(), format);
  if (wanted[1]) std::get<1>(out) = at::empty_like(weight);
  if (wanted[2]) std::get<2>(out) = at::empty({grad.size(1)}, input.options());
  return out;
}

ThreeGradients meta_convolution_backward(const Tensor& grad, const Tensor& input,
                                         const Tensor& weight, at::IntArrayRef,
                                         at::IntArrayRef, at::IntArrayRef, bool,
                                         at::IntArrayRef, int64_t,
                                         std::array<bool, 3> wanted) {
  return convolution_gradients(grad, input, weight, wanted);
}

// The host unfolds its input for the gradient of the weights, after it has brought what
// it is given into one format.
ThreeGradients meta_unfolded_backward(const Tensor& grad, const Tensor& input,
                                      const Tensor& weight, at::IntArrayRef,
                                      at::IntArrayRef stride, at::IntArrayRef padding,
                                      std::array<bool, 3> wanted) {
  ThreeGradients out = convolution_gradients(grad, input, weight, wanted);
  const auto format = image_format(input, weight);
  const Tensor turned_input = input.contiguous(format);
  const Tensor turned_grad = grad.contiguous(format);
  const int64_t patch = weight.numel() / weight.size(0);
  const bool as_it_is = patch == input.size(1) && stride[0] == 1 && padding[0] == 0;
  if (wanted[1] && !as_it_is)
    at::empty({input.size(0), patch, grad.size(2) * grad.size(3)}, input.options());
  return out;
}

std::tuple<Tensor, Tensor, Tensor> meta_batch_norm(const Tensor& input,
                                                   const std::optional<Tensor>&,
                                                   const std::optional<Tensor>&,
                                                   const std::optional<Tensor>&,
                                                   const std::optional<Tensor>&,
                                                   bool train, double, double) {
  const auto wide = input.options().dtype(at::kFloat);
  const int64_t kept = train ? input.size(1) : 0;
  return {at::empty_like(input), at::empty({kept}, wide), at::empty({kept}, wide)};
}

ThreeGradients meta_batch_norm_backward(const Tensor& grad, const Tensor& input,
                                        const std::optional<Tensor>&,
                                        const std::optional<Tensor>&,
                                        const std::optional<Tensor>&,
                                        const std::optional<Tensor>&,
                                        const std::optional<Tensor>&, bool, double,
                                        std::array<bool, 3> wanted) {
  const auto wide = input.options().dtype(at::kFloat);
  ThreeGradients out;
  if (wanted[0]) std::get<0>(out) = at::empty_like(input);
  if (wanted[1]) std::get<1>(out) = at::empty({input.size(1)}, wide);
  if (wanted[2]) std::get<2>(out) = at::empty({input.size(1)}, wide);
  // The host's fast path, for two of one format, has a buffer of their size.
  if (grad.suggest_memory_format() == input.suggest_memory_format())
    at::empty_like(input);
  return out;
}

std::tuple<Tensor, Tensor> meta_var_mean(const Tensor& input,
                                         at::OptionalIntArrayRef dims,
                                         const std::optional<at::Scalar>&, bool keep) {
  const Tensor mean = input.mean(dims, keep);
  return {at::empty_like(mean), mean};
}

// A mean and a deviation for each row of the input.
ThreeGradients meta_layer_norm(const Tensor& input, at::IntArrayRef normalized,
                               const std::optional<Tensor>&,
                               const std::optional<Tensor>&, double) {
  auto rows = input.sizes().vec();
  for (size_t i = rows.size() - normalized.size(); i < rows.size(); ++i) rows[i] = 1;
  const Tensor mean = at::empty(rows, input.options());
  return {at::empty(input.sizes(), input.options()), mean, at::empty_like(mean)};
}

ThreeGradients meta_layer_norm_backward(const Tensor&, const Tensor& input,
                                        at::IntArrayRef normalized, const Tensor&,
                                        const Tensor&, const std::optional<Tensor>&,
                                        const std::optional<Tensor>&,
                                        std::array<bool, 3> wanted) {
  ThreeGradients out;
  if (wanted[0]) std::get<0>(out) = at::empty(input.sizes(), input.options());
  if (wanted[1]) std::get<1>(out) = at::empty(normalized, input.options());
  if (wanted[2]) std::get<2>(out) = at::empty(normalized, input.options());
  return out;
}

// (samples, heads, tokens, width), which lie in memory as (samples, tokens, heads,
// width); and a number for each row of weights.
std::tuple<Tensor, Tensor> meta_attention(const Tensor& query, const Tensor&,
                                          const Tensor&, double, bool,
                                          const std::optional<Tensor>&,
                                          std::optional<double>) {
  const auto form = query.transpose(1, 2).sizes().vec();
  return {at::empty(form, query.options()).transpose(1, 2),
          at::empty({form[0], form[1], form[2]}, query.options().dtype(at::kFloat))
              .transpose(1, 2)};
}

ThreeGradients meta_attention_backward(const Tensor&, const Tensor& query,
                                       const Tensor& key, const Tensor& value,
                                       const Tensor&, const Tensor&, double, bool,
                                       const std::optional<Tensor>&,
                                       std::optional<double>) {
  const auto gradient = [](const Tensor& of) {
    return at::empty(of.transpose(1, 2).sizes(), of.options()).transpose(1, 2);
  };
  return {gradient(query), gradient(key), gradient(value)};
}

Tensor meta_index_select(const Tensor& input, int64_t dim, const Tensor& index) {
  auto shape = input.sizes().vec();
  shape[dim] = index.numel();
  return at::empty(shape, input.options());
}

Tensor meta_embedding_backward(const Tensor& grad, const Tensor&, int64_t rows, int64_t,
                               bool) {
  return at::empty({rows, grad.size(-1)}, grad.options());
}

torch::Library meta_kernels() {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                         __LINE__);
  library.impl("relu", TORCH_FN(meta_relu));
  library.impl("convolution_overrideable", TORCH_FN(meta_convolution));
  library.impl("convolution_backward_overrideable",
               TORCH_FN(meta_convolution_backward));
  library.impl("_slow_conv2d_backward.output_mask", TORCH_FN(meta_unfolded_backward));
  library.impl("var_mean.correction", TORCH_FN(meta_var_mean));
  library.impl("native_batch_norm", TORCH_FN(meta_batch_norm));
  library.impl("native_batch_norm_backward", TORCH_FN(meta_batch_norm_backward));
  library.impl("native_layer_norm", TORCH_FN(meta_layer_norm));
  library.impl("native_layer_norm_backward", TORCH_FN(meta_layer_norm_backward));
  library.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(meta_attention));
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               TORCH_FN(meta_attention_backward));
  library.impl("index_select", TORCH_FN(meta_index_select));
  library.impl("embedding_dense_backward", TORCH_FN(meta_embedding_backward));
  return library;
}

}  // namespace

void prepare_meta_device() {
  static const torch::Library kernels = [] {
    // Storages outlive any order of destruction, so it has none.
    static MetaMemory* const memory = new MetaMemory;
    constexpr uint8_t kBeforeLibTorchs = 1;
    c10::SetAllocator(c10::kMeta, memory, kBeforeLibTorchs);
    return meta_kernels();
  }();
}

}  // namespace cohort
