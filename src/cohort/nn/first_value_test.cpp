// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/first_value.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/core/memory.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"

namespace cohort {
namespace {

Chain small_resnet() {
  ResNetOptions options = resnet_options("resnet18");
  options.width = 8;
  return make_resnet(options, {.seed = 3});
}

// With a vocabulary that ends in padding on the second rank.
Chain part_of_gpt(int rank) {
  return make_gpt({.vocab = 19, .context = 8, .width = 8, .depth = 1, .heads = 2},
                  {.seed = 3, .tensor = {.rank = rank, .size = 2}});
}

Chain filled_later(const std::function<Chain()>& make) {
  const ModelsFilledLater guard;
  return make();
}

TEST(FirstValue, AModelFilledLaterHasTheFormAndThenTheBitsOfTheUsualOne) {
  const std::function<Chain()> models[] = {
      small_resnet,
      [] { return make_mlp({.width = 64}, {.seed = 3}); },
      [] { return make_cnn({}, {.seed = 3}); },
      [] { return make_cnn({}, {.seed = 3, .channels_last = false}); },
      [] { return part_of_gpt(0); },
      [] { return part_of_gpt(1); }};
  for (const auto& make : models) {
    const auto usual = make().parameters();
    const Chain later = filled_later(make);
    const auto handles = later.parameters();
    ASSERT_EQ(usual.size(), handles.size());
    for (size_t i = 0; i < usual.size(); ++i) {
      const auto& [name, tensor] = handles[i];
      EXPECT_NE(first_value_of(tensor), nullptr) << name;
      EXPECT_EQ(name, usual[i].name);
      EXPECT_EQ(tensor.sizes(), usual[i].tensor.sizes()) << name;
      EXPECT_EQ(tensor.strides(), usual[i].tensor.strides()) << name;
      EXPECT_EQ(tensor.requires_grad(), usual[i].tensor.requires_grad()) << name;
    }
    give_first_values(later);
    for (size_t i = 0; i < usual.size(); ++i) {
      EXPECT_EQ(first_value_of(handles[i].tensor), nullptr);
      EXPECT_TRUE(handles[i].tensor.equal(usual[i].tensor)) << usual[i].name;
    }
  }
}

class FirstValues : public testing::TestWithParam<double> {
 protected:
  const FirstValue value{.key = RandomKey::of_path(5, "w"),
                         .low = -0.5,
                         .high = 0.25,
                         .deviation = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(UniformAndNormal, FirstValues, testing::Values(0, 0.02));

TEST_P(FirstValues, AnyStretchCanBeMadeAlone) {
  const Tensor row_major = new_parameter({6, 5, 3, 3}, value);
  const Tensor forms[] = {
      row_major, new_parameter({6, 5, 3, 3}, value, at::MemoryFormat::ChannelsLast),
      row_major.permute({1, 0, 2, 3}).contiguous().permute({1, 0, 2, 3})};
  for (const auto& form : forms) {
    ASSERT_TRUE(form.equal(row_major));
    const Tensor flat = form.as_strided({form.numel()}, {1});
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 270}, {0, 1}, {44, 46}, {45, 90}, {13, 257}, {269, 270}, {7, 7}}) {
      const Tensor out = at::empty({end - begin});
      StateTensor piece = whole_tensor("w", form);
      piece.spec.begin = begin;
      piece.spec.end = end;
      make_piece(value, piece, out);
      EXPECT_TRUE(out.equal(flat.narrow(0, begin, end - begin)))
          << begin << " to " << end << " with strides " << form.strides();
    }
  }
}

TEST_P(FirstValues, AnyBoxCanBeMadeAlone) {
  for (const auto format :
       {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Tensor form = new_parameter({6, 5, 3, 3}, value, format);
    const Tensor flat = form.as_strided({form.numel()}, {1});
    for (const std::vector<int64_t>& cut :
         {std::vector<int64_t>{6, 45}, {6, 9, 5}, {2, 3, 45}, {54, 5}}) {
      const auto last = static_cast<int64_t>(cut.size()) - 1;
      StateTensor piece = whole_tensor("w", form);
      piece.spec.box = {cut, std::vector<int64_t>(cut.size(), 0), cut};
      piece.spec.box.from[last] = 1;
      piece.spec.box.to[last] = 4;
      const Tensor box = flat.view(cut).slice(last, 1, 4).contiguous().view({-1});
      piece.spec.begin = 5;
      piece.spec.end = box.numel() - 2;
      const Tensor out = at::empty({piece.spec.end - piece.spec.begin});
      make_piece(value, piece, out);
      EXPECT_TRUE(out.equal(box.narrow(0, 5, out.numel()))) << at::IntArrayRef(cut);
    }
  }
}

TEST(FirstValue, ModelsFilledLaterTakeNoMemory) {
  MemoryCounter counter;
  const TensorMemoryScope scope(counter);
  const Chain later =
      filled_later([] { return make_mlp({.width = 2048, .depth = 3}, {}); });
  EXPECT_LT(counter.peak(), 1000);
}

TEST(FirstValue, ElementsThatAreNotThereAreNotTouched) {
  const Chain later = filled_later(small_resnet);
  const Tensor parameter = later.parameters().front().tensor;
  EXPECT_THROW((void)parameter.detach().sum().item<float>(), c10::Error);
  EXPECT_THROW((void)parameter.detach().clone(), c10::Error);
}

TEST(FirstValue, AModelWithoutMemoryStaysWithout) {
  const ModelsFilledLater later;
  const ModelsWithoutMemory never;
  const Chain chain = small_resnet();
  EXPECT_TRUE(chain.parameters().front().tensor.is_meta());
  give_first_values(chain);
  EXPECT_TRUE(chain.parameters().front().tensor.is_meta());
}

}  // namespace
}  // namespace cohort
