// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<BlockSpec> blocks_of_cost(std::initializer_list<double> costs) {
  std::vector<BlockSpec> blocks;
  for (const double cost : costs)
    blocks.push_back({.name = "block", .parameters = {{.name = "p"}}, .cost = cost});
  return blocks;
}

std::vector<int> sizes_of(const std::vector<Stage>& stages) {
  std::vector<int> sizes;
  int next = 0;
  for (int p = 0; p < static_cast<int>(stages.size()); ++p) {
    EXPECT_EQ(stages[p].place, p);
    for (const int block : stages[p].blocks) EXPECT_EQ(block, next++);
    sizes.push_back(static_cast<int>(stages[p].blocks.size()));
  }
  return sizes;
}

TEST(Stages, TheMostCostlyCostsLeast) {
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({1, 1, 1, 1}), 2)),
              ElementsAre(2, 2));
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({5, 1, 1, 1, 1}), 2)),
              ElementsAre(1, 4));
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({1, 1, 1, 7}), 2)),
              ElementsAre(3, 1));
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({3, 2, 2, 3}), 4)),
              ElementsAre(1, 1, 1, 1));
}

TEST(Stages, EachPlaceHasABlock) {
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({0, 0, 9}), 3)),
              ElementsAre(1, 1, 1));
  const std::string said = test::message_of<ConfigError>([&] {
    make_stages(blocks_of_cost({1, 1, 1}), 4);
  });
  EXPECT_THAT(said, HasSubstr("pp=4: the model has 3 blocks"));
  EXPECT_THAT(said, HasSubstr("legal: pp=1 to 3"));
}

TEST(Stages, AFastPlaceHasMoreToDo) {
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({1, 1, 1, 1, 1, 1, 1, 1}), 3,
                                   {.speeds = {1, 1, 2}})),
              ElementsAre(2, 2, 4));
}

TEST(Stages, SecondsOfATableCountForMoreThanOperations) {
  const auto blocks = blocks_of_cost({9, 1, 1, 1});
  EXPECT_THAT(sizes_of(make_stages(blocks, 2)), ElementsAre(1, 3));
  EXPECT_THAT(sizes_of(make_stages(blocks, 2, {.costs = {1, 1, 1, 9}})),
              ElementsAre(3, 1));
  EXPECT_THAT(sizes_of(make_stages(blocks, 2, {.costs = {1, 1, 1, 1}})),
              ElementsAre(2, 2));
  EXPECT_THAT(sizes_of(make_stages(blocks, 3, {.costs = {1, 1, 1, 1e-9}})),
              ElementsAre(1, 1, 2));
}

TEST(Stages, SecondsOfATableAreDividedBySpeeds) {
  EXPECT_THAT(sizes_of(make_stages(blocks_of_cost({9, 1, 1, 1, 1, 1}), 2,
                                   {.speeds = {2, 1}, .costs = {1, 1, 1, 1, 1, 1}})),
              ElementsAre(4, 2));
}

TEST(Stages, ATableOfAnotherModelIsRefused) {
  const auto why = [](int blocks, int places, const PipelineOptions& options) {
    return test::message_of<ConfigError>(
        [&] { require_stages(blocks, places, options); });
  };
  EXPECT_EQ(why(4, 2, {.costs = {1, 1, 1, 1}}), "no error");
  EXPECT_EQ(why(4, 2, {.costs = {1, 1, 1}}),
            "[step] pipeline.costs has 3 blocks, and the model 4; legal: a table of "
            "costs of this model's blocks");
  EXPECT_EQ(why(4, 1, {.costs = {1, 1, 1, 1}}),
            "[step] pipeline.costs with pp=1, where nothing is cut; legal: no "
            "pipeline.costs, or --layout pp=2 and more");
}

std::string why_not(int blocks, int places, const PipelineText& given) {
  return test::message_of<ConfigError>(
      [&] { require_stages(blocks, places, parse_pipeline(given)); });
}

TEST(Stages, WithoutAPipelineNoneAreNamed) {
  for (const auto name : {"gpipe", "1f1b", "interleaved", "zero-bubble"})
    EXPECT_EQ(why_not(4, 1, {.schedule = name}), "no error") << name;
  EXPECT_EQ(why_not(4, 1, {.cut = "0-3"}), "no error");
  EXPECT_EQ(why_not(4, 1, {.speeds = "2"}), "no error");
  EXPECT_EQ(why_not(4, 1, {.cut = "0,1-3"}),
            "[step] pipeline.cut has 2 stages, and pp=1 needs 1; legal: auto, or 1 of "
            "them, or --layout pp=2");
  EXPECT_EQ(
      why_not(4, 1, {.schedule = "interleaved", .stages_per_place = 2, .cut = "0,1-3"}),
      "[step] pipeline.cut has 2 stages, and pp=1 needs 1; legal: auto, or 1 of them");
  EXPECT_EQ(
      why_not(4, 1, {.speeds = "1,1,2"}),
      "[step] pipeline.speeds has 3 numbers, and pp=1 as many places; legal: 1 of "
      "them, or none, or --layout pp=3");
  EXPECT_THAT(why_not(4, 1, {.cut = "0-2"}), HasSubstr("ends with block 2"));
}

TEST(Stages, WithoutCountsParametersAre) {
  std::vector<BlockSpec> blocks = blocks_of_cost({0, 0, 0});
  for (int i = 0; i < 3; ++i) blocks[i].parameters[0].shape = {i == 0 ? 100 : 10};
  EXPECT_THAT(sizes_of(make_stages(blocks, 2)), ElementsAre(1, 2));
}

}  // namespace
}  // namespace cohort
