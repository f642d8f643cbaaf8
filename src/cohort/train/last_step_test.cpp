// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/last_step.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

TEST(LastStep, OfAPeerIsReadWholeOrNotAtAll) {
  const LastStep step{
      .step = 7, .loss = 0.5, .drawn = {.sum = 11, .count = 4}, .samples = {}};
  const std::string bytes = step.bytes();
  EXPECT_EQ(LastStep::of(bytes), step);
  EXPECT_THROW(LastStep::of(bytes.substr(0, 24)), BugError);
  EXPECT_THROW(LastStep::of(""), BugError);
}

}  // namespace
}  // namespace cohort
