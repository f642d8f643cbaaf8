// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/layers.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// Words made at once; they stay in the first cache.
constexpr int64_t kMaskChunk = 1024;

// uniform_float(key, j) is k / 2^24 for the upper 24 bits k, so that u < p is k <
// limit.
void fill_row(float* __restrict out, int64_t first, int64_t count, const RandomKey& key,
              uint32_t limit, float kept) {
  std::array<uint32_t, kMaskChunk> words;
  for (int64_t begin = 0; begin < count; begin += kMaskChunk) {
    const int64_t n = std::min(kMaskChunk, count - begin);
    random_bits(key, static_cast<uint64_t>(first + begin),
                std::span(words.data(), static_cast<size_t>(n)));
    for (int64_t i = 0; i < n; ++i)
      out[begin + i] = (words[i] >> 8) < limit ? 0.0f : kept;
  }
}

}  // namespace

Dropout::Dropout(std::string name, double p) : name_(std::move(name)), p_(p) {
  if (!(p >= 0 && p < 1))
    throw ConfigError(
        text("[nn] dropout of ", p, " in ", name_, "; legal: 0 or more, below 1"));
}

uint32_t Dropout::limit() const {
  return static_cast<uint32_t>(std::ceil(p_ * 0x1p24));
}

float Dropout::kept() const { return static_cast<float>(1 / (1 - p_)); }

Tensor Dropout::device_mask(const Tensor& input, Context& context,
                            int64_t first) const {
  const c10::NoGradGuard no_grad;
  const int64_t rows = input.size(0);
  const int64_t columns = rows > 0 ? input.numel() / rows : 0;
  return context.random->bits(name_, first, columns)
      .bitwise_right_shift(8)
      .ge(int64_t{limit()})
      .to(at::kFloat)
      .mul_(kept())
      .to(input.scalar_type())
      .view(input.sizes());
}

Tensor Dropout::operator()(const Tensor& input, Context& context, int64_t first) const {
  if (p_ == 0 || context.phase == Phase::kEvaluate) return input;
  const int64_t rows = input.size(0);
  COHORT_CHECK(static_cast<int64_t>(context.sample_ids.size()) == rows, name_, ": ",
               rows, " rows and ", context.sample_ids.size(), " sample ids");
  if (context.random) return input * device_mask(input, context, first);
  if (input.is_meta()) return input * at::empty_like(input);  // nothing to fill
  Tensor mask = at::empty(input.sizes(), at::kFloat);
  float* values = mask.mutable_data_ptr<float>();
  const int64_t columns = rows > 0 ? input.numel() / rows : 0;
  for (int64_t row = 0; row < rows; ++row)
    fill_row(values + row * columns, first, columns,
             RandomKey::of_sample(context.seed, context.step, context.sample_ids[row],
                                  name_),
             limit(), kept());
  return input * mask.to(input.options());
}

}  // namespace cohort
