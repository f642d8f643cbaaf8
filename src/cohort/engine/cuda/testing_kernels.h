// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cohort/core/mix.h"
#include "cohort/engine/state_kernels.h"

namespace cohort::test {

// An implementation that the suite runs on. Each program that holds the suite says
// which: the host's loops and the kernels' text on the host, or a GPU.
struct KernelsUnderTest {
  std::string name;
  std::function<std::string()> why_not;  // empty if they can be made
  std::function<std::unique_ptr<StateKernels>()> make;
  bool has_logits = true;
};
inline void PrintTo(const KernelsUnderTest& kernels, std::ostream* out) {
  *out << kernels.name;
}
std::vector<KernelsUnderTest> kernels_under_test();

class KernelsTest : public testing::TestWithParam<KernelsUnderTest> {
 protected:
  void SetUp() override {
    if (const std::string why = GetParam().why_not(); !why.empty()) GTEST_SKIP() << why;
    kernels_ = GetParam().make();
  }

  // A copy on the device that begins `offset` elements behind an aligned address.
  Tensor there(const Tensor& host, int64_t offset = 0) const {
    const Tensor memory =
        at::empty({host.numel() + offset}, host.options().device(kernels_->device()));
    const Tensor part = memory.narrow(0, offset, host.numel());
    part.copy_(host);
    return part;
  }

  Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype) const {
    return at::zeros(sizes, at::TensorOptions(dtype).device(kernels_->device()));
  }

  std::unique_ptr<StateKernels> kernels_;
};

inline std::string kernels_name(const testing::TestParamInfo<KernelsUnderTest>& info) {
  return info.param.name;
}

constexpr at::ScalarType kGradientTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr int64_t kLengths[] = {0, 1, 3, 4, 7, 1023, 1024, 1025, 4099, 70'001};

// Numbers of many sizes, the same for the same seed.
inline Tensor values_of(int64_t count, uint64_t seed) {
  const Tensor values = at::empty({count}, at::kFloat);
  float* const to = values.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = mix64(seed * kGolden64 + static_cast<uint64_t>(i));
    const double mantissa = 1 + static_cast<double>(bits >> 40) / (1 << 24);
    const int exponent = static_cast<int>(bits % 21) - 12;
    to[i] = static_cast<float>(std::ldexp(bits & 32 ? mantissa : -mantissa, exponent));
  }
  return values;
}

// Some of them replaced: infinite, no number, next to zero, too large for 16 bits.
inline Tensor odd_values_of(int64_t count, uint64_t seed) {
  const Tensor values = values_of(count, seed);
  const float odd[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       1e-40f,
                       -1e-45f,
                       3e-7f,
                       65'519.0f,
                       65'520.0f,
                       3.4e38f,
                       -0.0f};
  for (int64_t i = 0; i < count; i += 3)
    values.data_ptr<float>()[i] = odd[(i / 3) % std::size(odd)];
  return values;
}

// Bit for bit; what is no number only has to be none on both sides.
inline testing::AssertionResult same_bits(const Tensor& given, const Tensor& expected) {
  const Tensor a = given.cpu().contiguous(), b = expected.cpu().contiguous();
  if (a.scalar_type() != b.scalar_type() || a.numel() != b.numel())
    return testing::AssertionFailure() << a.numel() << " elements beside " << b.numel();
  const size_t width = a.element_size();
  const auto* const bytes_a = static_cast<const char*>(a.const_data_ptr());
  const auto* const bytes_b = static_cast<const char*>(b.const_data_ptr());
  const Tensor none_a = at::isnan(a).flatten(), none_b = at::isnan(b).flatten();
  for (int64_t i = 0; i < a.numel(); ++i) {
    const bool both =
        none_a.const_data_ptr<bool>()[i] && none_b.const_data_ptr<bool>()[i];
    if (both || std::memcmp(bytes_a + i * width, bytes_b + i * width, width) == 0)
      continue;
    return testing::AssertionFailure()
           << "element " << i << " of " << a.numel() << ": "
           << a.flatten()[i].item<double>() << " instead of "
           << b.flatten()[i].item<double>();
  }
  return testing::AssertionSuccess();
}

}  // namespace cohort::test
