// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_times.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace cohort::cli {
namespace {

TEST(KernelTimes, CountsWhatRanLongestFirst) {
  const at::Tensor a = at::ones({300, 300});
  const auto times = kernel_times(at::kCPU, [&] {
    for (int i = 0; i < 3; ++i) a.mm(a);
  });
  const auto found =
      std::ranges::find_if(times, [](const auto& t) { return t.name == "mm"; });
  ASSERT_NE(found, times.end());
  EXPECT_EQ(found->launches, 3);
  EXPECT_GT(found->seconds, 0);
  EXPECT_TRUE(std::ranges::is_sorted(times, std::greater(), &KernelTime::seconds));
}

TEST(KernelTimes, NamesAreShort) {
  EXPECT_EQ(short_name("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, "
                       "float>(float*, int)"),
            "cunn_SoftMaxForward");
  EXPECT_EQ(
      short_name("void at::native::vectorized_elementwise_kernel<4, "
                 "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda "
                 "}, std::array<char*, 2ul> >(int)"),
      "vectorized_elementwise_kernel GeluCUDAKernelImpl");
  EXPECT_EQ(short_name("void at::native::reduce_kernel<512, 1, "
                       "at::native::ReduceOp<float, sum_functor> >(int)"),
            "reduce_kernel ReduceOp");
  EXPECT_EQ(short_name("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"),
            "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT");
  EXPECT_EQ(short_name("kernel_0"), "kernel_0");
}

}  // namespace
}  // namespace cohort::cli
