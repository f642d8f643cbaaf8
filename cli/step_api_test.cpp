// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/testing_error.h"
#include "cohort/step.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using test::find_recipe;
using test::message_of;
using testing::HasSubstr;

Config small_mlp() {
  Config config = find_recipe("mlp").defaults();
  for (const char* assignment : {"batch=32", "model.width=16", "model.depth=4"})
    config.set_assignment(assignment);
  return config;
}

TEST(StepApi, ForetellsWhatTheCommandShows) {
  const StepForecast one = foretell_step(find_recipe("mlp"), small_mlp());
  const StepForecast four = foretell_step(find_recipe("mlp"), small_mlp(),
                                          {.ranks = 4, .layout = "pp=2,shard=1"});
  EXPECT_EQ(four.layout, "dp=2,pp=2,shard=1");
  EXPECT_GT(four.actions, one.actions);
  EXPECT_GT(four.seconds, 0);
  EXPECT_GT(four.peak_bytes, 0);
  EXPECT_THAT(four.summary, HasSubstr("dp=2,pp=2,shard=1"));
  EXPECT_THAT(four.csv, HasSubstr("a step of 4 ranks"));
  EXPECT_THAT(four.svg, HasSubstr("<svg"));
}

TEST(StepApi, RefusesALayoutThatTheWorldDoesNotHave) {
  EXPECT_THAT(message_of<ConfigError>([] {
                foretell_step(find_recipe("mlp"), small_mlp(),
                              {.ranks = 4, .layout = "dp=3"});
              }),
              HasSubstr("dp=3"));
}

TEST(StepApi, ComparesALayoutWithOneRank) {
  const StepVerdict near = verify_step(find_recipe("mlp"), small_mlp(),
                                       {.ranks = 4, .layout = "pp=2,shard=1"});
  EXPECT_TRUE(near.is_equal) << near.deviation;
  EXPECT_LT(near.largest, 1e-9);
  const StepVerdict exact =
      verify_step(find_recipe("mlp"), small_mlp(),
                  {.ranks = 2, .layout = "shard=3", .exact = true});
  EXPECT_TRUE(exact.is_equal) << exact.deviation;
  EXPECT_EQ(exact.largest, 0);
}

}  // namespace
}  // namespace cohort
