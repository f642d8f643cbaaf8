// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace cohort::test;  // NOLINT: a test

class TensorSources : public CheckpointFolder {
 protected:
  // A source in memory, by way of a file.
  TensorSource source(const std::vector<NamedTensor>& tensors) {
    const auto path = text(dir_, "/s", ++files_, ".safetensors");
    write_safetensors(path, tensors);
    return open_tensors(path);
  }

  int files_ = 0;
};

TEST_F(TensorSources, WeightsGoOutInEveryFormAndComeBack) {
  const auto report = save(root_, 3, some_state(), 3);
  TensorSource saved = open_tensors(root_);
  EXPECT_EQ(saved.path, report.path);
  EXPECT_EQ(saved.run.step, 3);
  keep_weights(saved);
  EXPECT_EQ(saved.tensors.size(), some_state().size() - 1);
  int n = 0;
  for (const auto form :
       {TensorForm::kSafetensors, TensorForm::kTorch, TensorForm::kHuggingFace}) {
    for (const int64_t most : {int64_t{100}, int64_t{1} << 30}) {
      const auto path = text(dir_, "/out", n++);
      const auto bytes =
          export_tensors(saved, path, {.form = form, .max_shard_bytes = most});
      EXPECT_EQ(bytes, 231 * 4 + 40 * 2 + 48 * 4 + 8 + 3);
      const auto back = open_tensors(path);
      EXPECT_EQ(back.form, form);
      EXPECT_THAT(diff_tensors(saved, back), IsEmpty()) << form_name(form);
      EXPECT_THAT(
          diff_tensors(open_tensors(write_checkpoint(back, path + "c", 2)), saved),
          IsEmpty());
    }
  }
  EXPECT_TRUE(fs::exists(dir_ + "/out4/model-00001-of-00005.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ + "/out4/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(dir_ + "/out5/model.safetensors"));
  EXPECT_THAT(error_of([&] {
                export_tensors(saved, dir_ + "/out5",
                               {.form = TensorForm::kHuggingFace});
              }),
              HasSubstr("weights already"));
}

TEST_F(TensorSources, FloatingTensorsCanBeCastOnTheWayOut) {
  const auto saved =
      source({{"w", at::ones({4}) / 3}, {"n", at::full({2}, 9, at::kLong)}});
  export_tensors(saved, dir_ + "/x", {.dtype = at::kBFloat16});
  const auto back = open_tensors(dir_ + "/x");
  EXPECT_TRUE(at::equal(back.read("w"), (at::ones({4}) / 3).to(at::kBFloat16)));
  EXPECT_EQ(back.read("n").scalar_type(), at::kLong);
}

TEST_F(TensorSources, ReshapeCutsIntoAnyNumberOfFilesWithoutChangingAnything) {
  const auto report = save(root_, 3, some_state(), 2);
  const auto saved = open_tensors(root_);
  for (const int files : {1, 2, 3, 7}) {
    const auto path = write_checkpoint(saved, text(dir_, "/n", files), files);
    expect_state(path, some_state());
    Checkpoint reshaped(path);
    EXPECT_EQ(reshaped.manifest().files.size(), static_cast<size_t>(files));
    EXPECT_EQ(reshaped.manifest().run.state, at_step(3).state);
    EXPECT_EQ(reshaped.manifest().run.sample, at_step(3).sample);
  }
}

TEST_F(TensorSources, DiffNamesWhatDiffersAndByHowMuch) {
  const double nan = std::nan("");
  const auto a = source({{"same", at::ones({3})},
                         {"nan", at::full({2}, nan)},
                         {"value", at::tensor({1.0f, 2.0f, 4.0f})},
                         {"shape", at::ones({2, 3})},
                         {"dtype", at::ones({2})},
                         {"lost", at::ones({2})},
                         {"far", at::tensor({1.0f, 0.0f})},
                         {"large", at::full({1}, (int64_t{1} << 60) + 1, at::kLong)}});
  const auto b = source({{"same", at::ones({3})},
                         {"nan", at::full({2}, nan)},
                         {"value", at::tensor({1.0f, 2.5f, 3.0f})},
                         {"shape", at::ones({6})},
                         {"dtype", at::ones({2}, at::kDouble)},
                         {"new", at::ones({2})},
                         {"far", at::tensor({1.0f, static_cast<float>(nan)})},
                         {"large", at::full({1}, int64_t{1} << 60, at::kLong)}});
  std::map<std::string, TensorDifference> found;
  for (const auto& one : diff_tensors(a, b)) found[one.name] = one;
  ASSERT_EQ(found.size(), 7u);
  EXPECT_EQ(found.at("value").different, 2);
  EXPECT_EQ(found.at("value").numel, 3);
  EXPECT_EQ(found.at("value").max_absolute, 1.0);
  EXPECT_EQ(found.at("value").max_relative, 0.25);
  EXPECT_EQ(found.at("value").form, "");
  EXPECT_THAT(found.at("shape").form, AllOf(HasSubstr("2x3"), HasSubstr("F32 6")));
  EXPECT_THAT(found.at("dtype").form, AllOf(HasSubstr("F32"), HasSubstr("F64")));
  EXPECT_EQ(found.at("dtype").different, 0);
  EXPECT_THAT(found.at("lost").form, HasSubstr("only in A"));
  EXPECT_THAT(found.at("new").form, HasSubstr("only in B"));
  EXPECT_EQ(found.at("far").different, 1);
  EXPECT_TRUE(std::isinf(found.at("far").max_absolute));
  EXPECT_EQ(found.at("large").different, 1);
}

TEST_F(TensorSources, WhatIsNoSourceIsNamed) {
  const auto open = [&](const std::string& path) {
    return error_of([&] { (void)open_tensors(path); });
  };
  EXPECT_THAT(open(dir_ + "/nothing"), HasSubstr("is not there"));
  EXPECT_THAT(open(dir_), AllOf(HasSubstr(dir_), HasSubstr("has no checkpoint")));
  save(root_, 3, some_state());
  fs::resize_file(root_ + "/step-00000003/manifest.json", 10);
  EXPECT_THAT(open(root_), HasSubstr("manifest.json"));
  fs::create_directory(dir_ + "/hf");
  const auto index = dir_ + "/hf/model.safetensors.index.json";
  write_file_atomically(index, R"({"weight_map":{"w":"../x"}})");
  EXPECT_THAT(open(dir_ + "/hf"), HasSubstr("beside it"));
  write_file_atomically(index, R"({"weights":{}})");
  EXPECT_THAT(open(dir_ + "/hf"), HasSubstr("weight_map"));
  write_file_atomically(index, R"({"weight_map":{"w":"x.safetensors"}})");
  write_safetensors(dir_ + "/hf/x.safetensors",
                    std::vector<NamedTensor>{{"v", at::ones({1})}});
  EXPECT_THAT(open(dir_ + "/hf"), AllOf(HasSubstr("'w'"), HasSubstr("does not")));
}

}  // namespace
}  // namespace cohort
