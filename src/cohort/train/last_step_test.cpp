// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/last_step.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(LastStep, OfAPeerIsReadWholeOrNotAtAll) {
  const LastStep step{.step = 7,
                      .loss = 0.5,
                      .drawn = {.sum = 11, .count = 4},
                      .samples = {{3, 1}, {}, {2}}};
  const std::string bytes = to_record(step);
  EXPECT_EQ(try_read_record<LastStep>(bytes), step);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(try_read_record<LastStep>(bytes.substr(0, size))) << size;
}

}  // namespace
}  // namespace cohort
