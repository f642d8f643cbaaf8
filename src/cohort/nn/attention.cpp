// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "cohort/nn/wide_type.h"

namespace cohort {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// (samples, heads, tokens, width)
Tensor by_heads(const Tensor& tensor) { return tensor.transpose(1, 2); }

Tensor repeated_to(const Tensor& tensor, int64_t heads) {
  const int64_t times = heads / tensor.size(1);
  return times == 1 ? tensor : tensor.repeat_interleave(times, 1);
}

// Without memory LibTorch would choose a way that keeps all weights: the host's is
// counted instead.
Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& seen,
             bool causal) {
  const auto mask = seen.defined() ? std::optional(seen) : std::nullopt;
  if (q.is_meta())
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0, causal && !mask, mask));
  return at::scaled_dot_product_attention(q, k, v, mask, 0, causal && !mask,
                                          std::nullopt,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

}  // namespace

Attention::Attention(const Form& form, const TensorPart& part)
    : form_(form), dropout_(form.name, form.dropout), part_(part) {}

Tensor Attention::mask(const Tensor& segments, int64_t tokens,
                       const Tensor& like) const {
  const c10::NoGradGuard no_grad;
  const auto options = like.options().dtype(at::kBool);
  Tensor seen = at::ones({tokens, tokens}, options);
  if (form_.causal) seen = seen.tril();
  if (!segments.defined()) return seen;
  const Tensor same = segments.unsqueeze(2).eq(segments.unsqueeze(1)).unsqueeze(1);
  return same.bitwise_and(seen);
}

Tensor Attention::operator()(const Tensor& query, const Tensor& key,
                             const Tensor& value, const Tensor& segments,
                             Context& context) const {
  const Tensor q = by_heads(query), k = by_heads(key), v = by_heads(value);
  const bool drops = form_.dropout > 0 && context.phase == Phase::kTrain;
  Tensor seen;
  if (segments.defined() || (drops && form_.causal))
    seen = mask(segments, q.size(2), q);
  const Tensor output =
      drops ? by_steps(q, k, v, seen, context) : fused(q, k, v, seen, form_.causal);
  return output.transpose(1, 2).flatten(2);
}

Tensor Attention::by_steps(const Tensor& q, const Tensor& k, const Tensor& v,
                           const Tensor& seen, Context& context) const {
  const int64_t heads = q.size(1), tokens = q.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor scores = (q * scale).matmul(repeated_to(k, heads).transpose(2, 3));
  if (seen.defined()) scores = scores.masked_fill(seen.bitwise_not(), kNothing);
  const Tensor weights = at::softmax(scores, -1, wide_type(q)).to(q.scalar_type());
  const int64_t first_head = part_.rank * (form_.heads / part_.size);
  return dropout_(weights, context, first_head * tokens * tokens)
      .matmul(repeated_to(v, heads));
}

std::vector<std::string> segment_fields(bool segments) {
  if (!segments) return {};
  return {"segments"};
}

Tensor rotate(const Tensor& heads, double theta) {
  const int64_t tokens = heads.size(1), half = heads.size(3) / 2;
  const auto options = heads.options().dtype(at::kDouble).requires_grad(false);
  const Tensor rates = at::arange(half, options).mul_(-std::log(theta) / half).exp_();
  const Tensor angles = at::outer(at::arange(tokens, options), rates).unsqueeze(1);
  const Tensor cosine = angles.cos().to(heads.scalar_type());
  const Tensor sine = angles.sin().to(heads.scalar_type());
  const Tensor low = heads.narrow(3, 0, half), high = heads.narrow(3, half, half);
  return at::cat({low * cosine - high * sine, high * cosine + low * sine}, 3);
}

}  // namespace cohort
