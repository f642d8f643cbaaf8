// SPDX-License-Identifier: Apache-2.0
#include "cohort/rate_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

struct GoldenRates {
  RateOptions options;
  std::vector<double> rates;  // at steps 0, 1, ...
};

// Made by rate_golden.py: torch.optim.lr_scheduler. All have one base and one length.
constexpr double kGoldenBase = 0.4;
constexpr int64_t kGoldenSteps = 20;
const std::vector<GoldenRates> kGoldenRates = {
    {{.name = "constant"}, {0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4,
                            0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}},
    {{.name = "constant", .warmup_steps = 4},
     {0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4,
      0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}},
    {{.name = "step", .step_every = 6, .gamma = 0.1},
     {0.4,  0.4,  0.4,   0.4,   0.4,   0.4,   0.04,  0.04,  0.04,   0.04,
      0.04, 0.04, 0.004, 0.004, 0.004, 0.004, 0.004, 0.004, 0.0004, 0.0004}},
    {{.name = "step", .warmup_steps = 3, .step_every = 5, .gamma = 0.5},
     {0.133333333333,
      0.266666666667,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.2,
      0.2,
      0.2,
      0.2,
      0.2,
      0.1,
      0.1,
      0.1,
      0.1,
      0.1,
      0.05,
      0.05}},
    {{.name = "cosine"},
     {0.4,
      0.397537668119,
      0.390211303259,
      0.378201304838,
      0.361803398875,
      0.341421356237,
      0.317557050458,
      0.290798099948,
      0.261803398875,
      0.231286893008,
      0.2,
      0.168713106992,
      0.138196601125,
      0.109201900052,
      0.0824429495415,
      0.0585786437627,
      0.038196601125,
      0.0217986951623,
      0.00978869674097,
      0.00246233188097}},
    {{.name = "cosine", .warmup_steps = 4, .floor = 0.1},
     {0.1,
      0.2,
      0.3,
      0.4,
      0.4,
      0.396541350473,
      0.386298315852,
      0.369664530214,
      0.347279220614,
      0.320002641944,
      0.288883017826,
      0.255116257963,
      0.22,
      0.184883742037,
      0.151116982174,
      0.119997358056,
      0.0927207793864,
      0.0703354697855,
      0.053701684148,
      0.0434586495274}},
    {{.name = "linear"}, {0.4, 0.38, 0.36, 0.34, 0.32, 0.3, 0.28, 0.26, 0.24, 0.22,
                          0.2, 0.18, 0.16, 0.14, 0.12, 0.1, 0.08, 0.06, 0.04, 0.02}},
    {{.name = "linear", .warmup_steps = 5, .floor = 0.2},
     {0.08,
      0.16,
      0.24,
      0.32,
      0.4,
      0.4,
      0.378666666667,
      0.357333333333,
      0.336,
      0.314666666667,
      0.293333333333,
      0.272,
      0.250666666667,
      0.229333333333,
      0.208,
      0.186666666667,
      0.165333333333,
      0.144,
      0.122666666667,
      0.101333333333}},
    {{.name = "warmup-stable-decay", .warmup_steps = 4, .decay_steps = 6},
     {0.1,
      0.2,
      0.3,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.4,
      0.333333333333,
      0.266666666667,
      0.2,
      0.133333333333,
      0.0666666666667}},
    {{.name = "wsd", .decay_steps = 5, .floor = 0.1},
     {0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4,   0.4,   0.4,   0.4,
      0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.328, 0.256, 0.184, 0.112}},
};

TEST(RateSchedule, EveryStepIsThatOfPyTorch) {
  for (auto [options, rates] : kGoldenRates) {
    options.base = kGoldenBase;
    options.total_steps = kGoldenSteps;
    const RateSchedule schedule(options);
    for (size_t step = 0; step < rates.size(); ++step)
      EXPECT_NEAR(schedule.at(static_cast<int64_t>(step)), rates[step], 1e-9)
          << options.name << " warm-up " << options.warmup_steps << " step " << step;
  }
}

TEST(RateSchedule, StaysWhereTheDecayEnds) {
  for (const char* name : {"cosine", "linear", "wsd"}) {
    const RateSchedule rate(
        {.name = name, .base = 2, .warmup_steps = 3, .total_steps = 10, .floor = 0.25});
    for (int64_t step : {10, 11, 1000}) EXPECT_DOUBLE_EQ(rate.at(step), 0.5) << name;
  }
}

TEST(RateSchedule, WarmUpLongerThanTheRunIsAllThereIs) {
  for (const char* name : {"step", "cosine", "linear", "wsd"}) {
    const RateSchedule rate(
        {.name = name, .base = 1, .warmup_steps = 8, .total_steps = 4});
    EXPECT_DOUBLE_EQ(rate.at(0), 0.125) << name;
    EXPECT_DOUBLE_EQ(rate.at(3), 0.5) << name;
  }
}

TEST(RateSchedule, LengthsThatAreNotGivenFollowTheRun) {
  const RateSchedule steps(
      {.name = "step", .base = 1, .warmup_steps = 10, .total_steps = 100});
  EXPECT_DOUBLE_EQ(steps.at(39), 1);
  EXPECT_DOUBLE_EQ(steps.at(40), 0.1);
  const RateSchedule decay({.name = "wsd", .base = 1, .total_steps = 100});
  EXPECT_DOUBLE_EQ(decay.at(90), 1);
  EXPECT_DOUBLE_EQ(decay.at(95), 0.5);
}

TEST(RateSchedule, WarmsUpLinearlyAndStaysThere) {
  const RateSchedule rate({.base = 0.4, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.4);
}

TEST(RateSchedule, FollowsTheBatch) {
  RateOptions options{.base = 0.1, .batch = 1024, .reference_batch = 256};
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.1);
  options.scale = "linear";
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.4);
  options.scale = "sqrt";
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.2);
}

TEST(RateSchedule, NumbersOutOfRangeAreRefused) {
  EXPECT_THROW(RateSchedule({.name = "cosine"}), ConfigError);  // no length
  EXPECT_THROW(RateSchedule({.warmup_steps = -1}), ConfigError);
  EXPECT_THROW(RateSchedule({.gamma = 0}), ConfigError);
  EXPECT_THROW(RateSchedule({.floor = 1.5}), ConfigError);
}

TEST(RateSchedule, UnknownNamesAreRefused) {
  EXPECT_THAT(test::message_of<ConfigError>([&] { RateSchedule({.name = "cosinus"}); }),
              testing::HasSubstr("nearest: cosine"));
  EXPECT_THROW(RateSchedule({.scale = "cubic"}), ConfigError);
}

}  // namespace
}  // namespace cohort
