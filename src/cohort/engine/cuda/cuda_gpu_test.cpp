// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/train_steps_test.h"
#include "cohort/nn/batch_norm_function.h"

namespace cohort {
namespace {

using test::batch_of;
using test::train_by_executor;
using test::train_by_step;

class CudaGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_cuda();
    if (!why.empty()) GTEST_SKIP() << why;
    set_cuda_math({.tf32 = false, .search = false, .exact = true});
  }
};

CudaStepOptions options_of(bool capture, at::ScalarType dtype = at::kFloat) {
  CudaStepOptions options;
  options.decay.weight_decay = 0.01;
  options.compute = dtype;
  options.capture = capture;
  options.warmup = 2;
  return options;
}

TEST_F(CudaGpuTest, CapturedStepsGiveTheBitsOfUncapturedOnes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto captured = train_by_step(options_of(true, dtype), 7);
    const auto plain = train_by_step(options_of(false, dtype), 7);
    EXPECT_EQ(captured.losses, plain.losses) << dtype;
    test::expect_near(captured, plain, 0, 0);
  }
}

TEST_F(CudaGpuTest, AgreesWithTheExecutorOnTheHost) {
  for (const std::string name : {"sgd", "adamw"}) {
    CudaStepOptions options = options_of(true);
    options.update.name = name;
    options.update.eps = 1e-3;  // else Adam makes much of the rounding of tiny ones
    test::expect_near(train_by_step(options, 7), train_by_executor(options, 7), 1e-3,
                      1e-2);
  }
}

// The rate of a replay is that of its own step, not of the capture.
TEST_F(CudaGpuTest, AReplayUsesTheRateItIsGiven) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0), options_of(true));
  for (int64_t i = 0; i < 3; ++i) step.start(i, test::kRate);
  ASSERT_TRUE(step.captured());
  const Tensor before = step.weights()[0].tensor;
  step.start(3, 0);
  EXPECT_TRUE(step.weights()[0].tensor.equal(before));
  step.start(4, test::kRate);
  EXPECT_FALSE(step.weights()[0].tensor.equal(before));
}

TEST_F(CudaGpuTest, ABadStepLeavesNoTraceInAReplay) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0), options_of(true));
  for (int64_t i = 0; i < 3; ++i) step.start(i, test::kRate);
  const auto before = step.weights();
  Batch bad = batch_of(1);
  bad.input.fill_(std::numeric_limits<float>::quiet_NaN());
  step.load(bad);
  step.start(3, test::kRate);
  EXPECT_TRUE(step.result().skipped);
  const auto after = step.weights();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i].tensor.equal(after[i].tensor)) << before[i].name;
}

// Against float64 and LibTorch's own formula; channels that are far from zero.
TEST_F(CudaGpuTest, BatchNormBySumsGivesTheNormAndItsGradients) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const Tensor offset = at::linspace(-4, 4, 16, options).view({1, 16, 1, 1});
  const Tensor wide = at::sin(at::arange(6 * 16 * 9 * 9, options).mul(0.37))
                          .view({6, 16, 9, 9})
                          .add(offset);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor upstream =
        at::cos(at::arange(wide.numel(), options)).view_as(wide).to(dtype);
    Values gradients[2];
    Tensor outputs[2];
    for (const bool narrow : {false, true}) {
      const Tensor rounded = wide.to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
      const Tensor x =
          rounded.to(narrow ? dtype : at::kDouble).detach().requires_grad_(true);
      const auto type = options.dtype(narrow ? at::kFloat : at::kDouble);
      const Tensor w = at::linspace(0.5, 1.5, 16, type).requires_grad_(true);
      const Tensor b = at::linspace(-1, 1, 16, type).requires_grad_(true);
      ASSERT_EQ(has_batch_norm_by_sums(x), narrow);
      outputs[narrow] =
          narrow ? batch_norm_by_sums(x, w, b, 1e-5).output
                 : std::get<0>(at::native_batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5));
      const Tensor up = upstream.to(x.scalar_type());
      gradients[narrow] = torch::autograd::grad({outputs[narrow]}, {x, w, b}, {up});
    }
    const double bound = dtype == at::kHalf ? 4e-3 : 3e-2;
    EXPECT_TRUE(at::allclose(outputs[1].to(at::kDouble), outputs[0], bound, bound));
    for (int i = 0; i < 3; ++i) {
      const Tensor error = gradients[1][i].to(at::kDouble) - gradients[0][i];
      EXPECT_LT((error.norm() / gradients[0][i].norm()).item<double>(), bound) << i;
    }
  }
}

TEST_F(CudaGpuTest, RefusesToCaptureRandomNumbersOfTheHost) {
  Chain chain = make_mlp({.inputs = 4, .width = 8, .depth = 1, .dropout = 0.5}, {});
  const Batch batch{at::ones({2, 4}), at::zeros({2}, at::kLong), {0, 1}};
  CudaStep step(chain, batch, options_of(true));
  step.start(0, test::kRate);
  step.start(1, test::kRate);
  EXPECT_THROW(step.start(2, test::kRate), ConfigError);
}

}  // namespace
}  // namespace cohort
