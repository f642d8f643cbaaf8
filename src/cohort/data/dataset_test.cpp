// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/data/synthetic.h"

namespace cohort {
namespace {

using Names = std::vector<std::string>;

TEST(Batch, HasAsManySamplesAsItsFieldsHaveRows) {
  const Batch batch =
      Batch::of({{"tokens", at::ones({3, 5})}, {"mask", at::zeros({3})}}, {7, 8, 9});
  EXPECT_EQ(batch.count, 3);
  const auto given = batch.tensors(Names{"mask", "tokens"});
  ASSERT_EQ(given.size(), 2u);
  EXPECT_TRUE(given[0].is_same(batch.at("mask")));
  EXPECT_TRUE(given[1].is_same(batch.at("tokens")));
  EXPECT_THROW(Batch::of({{"a", at::ones({3})}, {"b", at::ones({2})}}), BugError);
}

TEST(Batch, SaysWhatItHasWhenAskedForMore) {
  const Batch batch = Batch::of({{"tokens", at::ones({3})}, {"mask", at::ones({3})}});
  EXPECT_THAT(test::message_of<BugError>([&] { (void)batch.at("target"); }),
              testing::HasSubstr("without the field 'target'; it has: mask, tokens"));
}

TEST(Dataset, MakesOnlyTheFieldsThatAreAskedFor) {
  const auto data = make_synthetic({.size = 9, .shape = {4}});
  const std::vector<int64_t> ids = {5, 0, 5};
  const Batch all = data->gather_all(ids);
  for (const Names& names : {Names{}, Names{"input"}, Names{"target"}}) {
    const Batch some = data->gather(ids, names);
    EXPECT_EQ(some.count, 3);
    EXPECT_EQ(some.ids, ids);
    ASSERT_EQ(some.fields.size(), names.size());
    for (const auto& [name, tensor] : some.fields)
      EXPECT_TRUE(tensor.equal(all.at(name))) << name;
  }
  EXPECT_THROW((void)data->gather(ids, Names{"mask"}), BugError);
}

TEST(Dataset, OneThatLacksAFieldIsRefusedInOneLine) {
  const auto data = make_synthetic({.size = 9, .shape = {4}});
  require_fields(*data, Names{"target", "input"});
  EXPECT_EQ(test::message_of<ConfigError>([&] {
              require_fields(*data, Names{"input", "mask"});
            }),
            "[data] the model takes the field 'mask' of a batch; synthetic: 9 "
            "samples 4, 10 classes has: input, target");
}

}  // namespace
}  // namespace cohort
