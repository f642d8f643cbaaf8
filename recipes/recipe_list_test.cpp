// SPDX-License-Identifier: Apache-2.0
#include "recipes/recipe_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/testing_error.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

// With a key and a name of one's choice.
class OwnRecipe final : public Recipe {
 public:
  explicit OwnRecipe(std::string name, std::string key = "data.turns")
      : name_(std::move(name)), key_(std::move(key)) {}
  std::string_view name() const override { return name_; }
  std::string_view help() const override { return "of a test"; }
  Config defaults() const override {
    Keys keys = common_keys();
    keys.add_int(key_, 1, "its own");
    return Config(std::move(keys));
  }
  Chain make_chain(const Config&, const TensorPart&) const override { return {}; }
  std::unique_ptr<DataLoading> load(const Config&, bool) const override {
    return data_at_hand({});
  }

 private:
  std::string name_, key_;
};

std::string refused_to_add(std::shared_ptr<const Recipe> recipe) {
  RecipeList list = built_in_recipes();
  return message_of<ConfigError>([&] { list.add(std::move(recipe)); });
}

TEST(RecipeList, FindsARecipeOfOnesOwnBesideTheOthers) {
  RecipeList list = built_in_recipes();
  list.add(std::make_shared<OwnRecipe>("own"));
  EXPECT_EQ(list.find("own").name(), "own");
  EXPECT_EQ(list.find("mlp").name(), "mlp");
  EXPECT_THAT(message_of<ConfigError>([&] { list.find("owm"); }),
              AllOf(HasSubstr("nearest: own"), HasSubstr("bert-tiny, own")));
}

TEST(RecipeList, RefusesANameThatIsTaken) {
  EXPECT_THAT(refused_to_add(std::make_shared<OwnRecipe>("mlp")),
              AllOf(HasSubstr("'mlp' is the name of two recipes"),
                    HasSubstr("fashion-mnist, mlp")));
}

TEST(RecipeList, RefusesWhatIsNoName) {
  for (const char* name : {"", "-n", "my recipe", "a/b"})
    EXPECT_THAT(refused_to_add(std::make_shared<OwnRecipe>(name)),
                HasSubstr("legal: letters"))
        << name;
  EXPECT_THAT(refused_to_add(nullptr), HasSubstr("null"));
}

TEST(RecipeList, RefusesAKeyThatEveryRecipeHas) {
  EXPECT_THAT(refused_to_add(std::make_shared<OwnRecipe>("own", "optim.lr")),
              HasSubstr("the key 'optim.lr' is there already"));
}

}  // namespace
}  // namespace cohort
