// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/link_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/generator.h"
#include "cohort/step/simulator.h"

namespace cohort {
namespace {

// One block of 4 MB whose computation takes no time: the step is its communication.
double step_on(std::string_view links, int ranks) {
  const std::vector<BlockSpec> specs = {
      {.name = "block", .parameters = {{"weight", {1'000'000}}}}};
  const Schedule schedule =
      generate(specs, {.dp = ranks}, {.slices = ranks, .vote = false});
  CostTable costs;
  costs.blocks.resize(1);
  take_links(links_of(find_link_profile(links)), costs);
  return simulate(schedule, costs).step;
}

TEST(LinkProfiles, OfOneNodeAreNvlink) {
  const double bytes = 4e6 * 2 * 7 / 8;
  EXPECT_NEAR(step_on("nvlink4-ndr", 8), 10e-6 + bytes / 450e9, 25e-6);
  EXPECT_EQ(step_on("nvlink4-ndr", 8), step_on("nvlink4-ndr-rails", 8));
}

TEST(LinkProfiles, BetweenNodesAreTheAdapters) {
  const double bytes = 4e6 * 2 * 63 / 64;
  const double one = step_on("nvlink4-ndr", 64), all = step_on("nvlink4-ndr-rails", 64);
  EXPECT_GT(one, step_on("nvlink4-ndr", 8));
  EXPECT_NEAR(one - all, bytes / 50e9 - bytes / 400e9, 10e-6);
}

TEST(LinkProfiles, EachSaysWhereItIsFrom) {
  for (const LinkProfile& profile : link_profiles())
    EXPECT_THAT(std::string(profile.source), testing::HasSubstr("published: "));
}

TEST(LinkProfiles, AnUnknownOneGetsTheNearestName) {
  EXPECT_EQ(test::message_of<ConfigError>([&] { find_link_profile("nvlink4"); }),
            "[step] unknown links 'nvlink4'; nearest: nvlink4-ndr; legal: "
            "nvlink4-ndr, nvlink4-ndr-rails");
}

}  // namespace
}  // namespace cohort
