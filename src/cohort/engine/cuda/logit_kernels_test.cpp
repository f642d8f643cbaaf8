// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/logit_kernels.h"

#include <cmath>
#include <set>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/device_kernels.h"
#include "cohort/engine/cuda/device_logits.h"
#include "cohort/engine/cuda/testing_kernels.h"

namespace cohort {
namespace {

using test::values_of;

// As many columns as a vocabulary may have: few, odd, and more than a block has
// threads.
struct Form {
  int64_t rows, columns, stride;
};
constexpr Form kForms[] = {{1, 1, 1},   {3, 5, 5},       {7, 19, 64},
                           {4, 64, 64}, {2, 1000, 1001}, {5, 4099, 4160}};

class LogitKernelsTest : public test::KernelsTest {
 protected:
  // Every third target is on another rank, every fourth row does not count. Padding
  // holds what is no number.
  struct Rows {
    Tensor logits, places, counted;  // where the kernels run
    Tensor wide;                     // what logits hold, float64, on the host
  };
  Rows make(const Form& form, at::ScalarType dtype) const {
    const Tensor values =
        values_of(form.rows * form.stride, 11).view({form.rows, form.stride}) * 8;
    Tensor logits = values.to(dtype);
    logits.narrow(1, form.columns, form.stride - form.columns).fill_(NAN);
    Tensor places = at::arange(form.rows) * 7 % form.columns;
    for (int64_t r = 2; r < form.rows; r += 3) places[r] = -1;
    const Tensor counted = at::arange(form.rows).remainder(4).ne(3);
    const auto device = kernels_->device();
    return {logits.to(device), places.to(device), counted.to(device),
            logits.narrow(1, 0, form.columns).to(at::kDouble)};
  }

  double bound(at::ScalarType dtype) const {
    return dtype == at::kFloat ? 2e-6 : dtype == at::kHalf ? 2e-3 : 2e-2;
  }
};

TEST_P(LogitKernelsTest, RowNumbersAreThoseOfFloat64) {
  for (const auto dtype : test::kGradientTypes)
    for (const Form& form : kForms) {
      const Rows rows = make(form, dtype);
      const Tensor sums = zeros({form.rows}, at::kDouble);
      const Tensor targets = zeros({form.rows}, at::kDouble);
      kernels_->logits()->row_numbers(rows.logits, form.columns, rows.places, sums,
                                      targets);
      EXPECT_TRUE(at::allclose(sums.cpu(), rows.wide.logsumexp(1), 1e-6, 1e-6));
      const Tensor places = rows.places.cpu();
      const Tensor wanted =
          rows.wide.gather(1, places.clamp_min(0).unsqueeze(1)).squeeze(1) *
          places.ge(0);
      EXPECT_TRUE(targets.cpu().equal(wanted)) << form.columns << " " << dtype;
    }
}

TEST_P(LogitKernelsTest, GradientIsThatOfFloat64) {
  for (const auto dtype : test::kGradientTypes)
    for (const Form& form : kForms)
      for (const double factor : {1.0, -0.5, 0.0}) {
        const Rows rows = make(form, dtype);
        const Tensor sums = rows.wide.logsumexp(1).to(kernels_->device());
        kernels_->logits()->turn_into_gradient(rows.logits, form.columns, rows.places,
                                               sums, rows.counted,
                                               at::full({}, factor, sums.options()));
        const Tensor places = rows.places.cpu();
        Tensor wanted = rows.wide.softmax(1);
        wanted.scatter_add_(1, places.clamp_min(0).unsqueeze(1),
                            places.ge(0).to(at::kDouble).neg().unsqueeze(1));
        wanted *= factor * rows.counted.cpu().to(at::kDouble).unsqueeze(1);
        const Tensor got = rows.logits.cpu().to(at::kDouble);
        EXPECT_TRUE(at::allclose(got.narrow(1, 0, form.columns), wanted, bound(dtype),
                                 bound(dtype) * 1e-2))
            << form.columns << " " << dtype;
        const Tensor padding = got.narrow(1, form.columns, form.stride - form.columns);
        EXPECT_TRUE(padding.eq(0).all().item<bool>());
      }
}

// So large that exponentials alone would overflow, and so small that all vanish.
TEST_P(LogitKernelsTest, LogitsOfAnySizeHaveTheirSum) {
  for (const double level : {-3e4, 1e-30, 3e4}) {
    const Tensor host = values_of(100, 3).view({1, 100}) + level;
    const Tensor sums = zeros({1}, at::kDouble), targets = zeros({1}, at::kDouble);
    kernels_->logits()->row_numbers(host.to(kernels_->device()), 100,
                                    zeros({1}, at::kLong), sums, targets);
    EXPECT_NEAR(sums.item<double>(), host.to(at::kDouble).logsumexp(1).item<double>(),
                1e-2);
  }
}

TEST_P(LogitKernelsTest, WhatIsNoNumberIsSeen) {
  Tensor host = values_of(100, 3).view({1, 100});
  host[0][41] = NAN;
  const Tensor sums = zeros({1}, at::kDouble), targets = zeros({1}, at::kDouble);
  kernels_->logits()->row_numbers(host.to(kernels_->device()), 100,
                                  zeros({1}, at::kLong), sums, targets);
  EXPECT_TRUE(std::isnan(sums.item<double>()));
}

TEST_P(LogitKernelsTest, TensorsThatDoNotFitAreRefused) {
  const Tensor logits = zeros({2, 8}, at::kFloat), two = zeros({2}, at::kDouble);
  const Tensor places = zeros({2}, at::kLong);
  auto& kernels = *kernels_->logits();
  EXPECT_THROW(kernels.row_numbers(logits, 9, places, two, two), BugError);
  EXPECT_THROW(kernels.row_numbers(logits.t(), 2, places, two, two), BugError);
  EXPECT_THROW(kernels.row_numbers(logits, 8, zeros({3}, at::kLong), two, two),
               BugError);
  EXPECT_THROW(kernels.row_numbers(logits.to(at::kDouble), 8, places, two, two),
               BugError);
}

// The loops of the host have none: LibTorch computes the loss there.
std::vector<test::KernelsUnderTest> with_logits() {
  auto all = test::kernels_under_test();
  std::erase_if(all, [](const auto& kernels) { return !kernels.has_logits; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, LogitKernelsTest, testing::ValuesIn(with_logits()),
                         test::kernels_name);

TEST(KernelNames, AreThoseOfTheirFunctions) {
  EXPECT_EQ(kernel_name({"update<AdamW, float, Bfloat16>", "UpdateArguments"}),
            "cohort_update_AdamW_float_Bfloat16");
  EXPECT_EQ(kernel_name({"vote", "VoteArguments"}), "cohort_vote");
  std::set<std::string> names;
  size_t kernels = 0;
  for (const auto& program : {sum_program(), logit_program()})
    for (const auto& kernel : program.kernels) {
      names.insert(kernel_name(kernel));
      ++kernels;
    }
  EXPECT_EQ(names.size(), kernels);
}

}  // namespace
}  // namespace cohort
