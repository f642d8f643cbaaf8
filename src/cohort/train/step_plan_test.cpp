// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

TEST(LayoutFor, ALaterWorldHasWholeCopiesOfTheModelOrIsRefused) {
  const Layout first{.dp = 3, .pp = 2, .replicate = 3};
  for (int size = 1; size <= 12; ++size) {
    const auto comms = make_local(size, std::chrono::seconds(60), /*generation=*/1);
    Layout later;
    const std::string said =
        test::message_of<ConfigError>([&] { later = layout_for(first, *comms[0]); });
    if (size % 2 == 1) {
      EXPECT_THAT(said, testing::HasSubstr(text("the world has ", size)));
      continue;
    }
    EXPECT_EQ(said, "no error");
    EXPECT_EQ(later.world(), size);
    EXPECT_EQ(later.pp, 2);
    EXPECT_EQ(later.replicate, size % 6 == 0 ? 3 : 1);
  }
}

TEST(LayoutFor, TheFirstWorldHasTheRanksOfItsLayout) {
  const auto comms = make_local(4, std::chrono::seconds(60));
  const Layout six{.dp = 3, .pp = 2};
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)layout_for(six, *comms[0]); }),
              testing::HasSubstr("is for 6 ranks; the world has 4"));
}

}  // namespace
}  // namespace cohort
