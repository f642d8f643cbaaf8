// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/fashion_mnist.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/testing_files.h"
#include "cohort/data/testing_node.h"

namespace cohort {
namespace {

using test::gzip;
using test::idx;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kImages = 5;

// 5 images with every byte value among their pixels.
std::string some_pixels() {
  std::string pixels(kImages * 784, '\0');
  std::iota(pixels.begin(), pixels.end(), '\0');
  return pixels;
}

class FashionMnist : public testing::Test {
 protected:
  FashionMnist() {
    write_file(dir_ / "train-images-idx3-ubyte.gz",
               gzip(idx({kImages, 28, 28}, some_pixels())));
    write_labels({9, 1, 0, 3, 4});
  }

  void write_labels(const std::string& labels) {
    write_file(dir_ / "train-labels-idx1-ubyte",
               idx({static_cast<uint32_t>(labels.size())}, labels));
  }

  std::unique_ptr<Dataset> open(bool normalize = false, Communicator* node = nullptr) {
    return open_fashion_mnist({.dir = dir_.path(), .normalize = normalize},
                              Split::kTrain, node);
  }

  std::string error_of_open() {
    return test::message_of<DataError>([&] { (void)open(); });
  }

  test::TempFolder dir_;
};

TEST_F(FashionMnist, GathersWhatTensorOperationsGive) {
  const auto pixels = some_pixels();
  const auto bytes =
      at::from_blob(const_cast<char*>(pixels.data()), {kImages, 1, 28, 28}, at::kByte);
  const std::vector<int64_t> ids{4, 0, 2, 2};
  const auto expected = bytes.index_select(0, at::tensor(ids)).to(at::kFloat).div(255);

  const auto plain = open()->gather_all(ids);
  EXPECT_TRUE(at::equal(plain.at("input"), expected));
  EXPECT_TRUE(at::equal(plain.at("target"), at::tensor({4, 9, 0, 0}, at::kLong)));

  const auto mean = at::tensor({0.2860f}), deviation = at::tensor({0.3530f});
  const auto normal = open(true)->gather_all(ids);
  EXPECT_TRUE(at::equal(normal.at("input"), expected.sub(mean).div(deviation)));
}

TEST_F(FashionMnist, GathersNothing) {
  const auto batch = open()->gather_all({});
  EXPECT_EQ(batch.at("input").sizes(), (std::vector<int64_t>{0, 1, 28, 28}));
  EXPECT_EQ(batch.at("target").sizes(), (std::vector<int64_t>{0}));
}

TEST_F(FashionMnist, RefusesASampleOutside) {
  const auto data = open();
  EXPECT_THROW((void)data->gather_all(std::vector<int64_t>{5}), BugError);
  EXPECT_THROW((void)data->gather_all(std::vector<int64_t>{-1}), BugError);
}

TEST_F(FashionMnist, OnlyTheFirstRankReads) {
  for (const int ranks : {1, 2, 3}) {
    const auto expected = open()->gather_all(std::vector<int64_t>{0, 1, 2, 3, 4});
    test::run_node(ranks, [&](Communicator& node) {
      const auto mine = node.rank() == 0 ? dir_.path() : "/nonexistent";
      const auto data = open_fashion_mnist({.dir = mine}, Split::kTrain, &node);
      const auto batch = data->gather_all(std::vector<int64_t>{0, 1, 2, 3, 4});
      EXPECT_TRUE(at::equal(batch.at("input"), expected.at("input")));
      EXPECT_TRUE(at::equal(batch.at("target"), expected.at("target")));
      EXPECT_EQ(data->describe(), "fashion-mnist train: 5 images 1x28x28, 10 classes");
    });
  }
}

TEST_F(FashionMnist, EveryRankThrowsTheReadersError) {
  std::filesystem::remove(dir_ / "train-labels-idx1-ubyte");
  const std::string error = error_of_open();
  EXPECT_THAT(error, HasSubstr("train-labels"));
  for (const int ranks : {2, 3}) {
    test::run_node(ranks, [&](Communicator& node) {
      EXPECT_EQ(test::message_of<DataError>([&] {
                  (void)open_fashion_mnist({.dir = dir_.path()}, Split::kTrain, &node);
                }),
                error);
    });
  }
}

TEST_F(FashionMnist, StartsEarlyAndFinishesLater) {
  const auto start = [](const std::string& dir, bool now) {
    return ImageLoading::start(fashion_mnist({.dir = dir}, Split::kTrain), now);
  };
  EXPECT_EQ(start(dir_.path(), true).finish(nullptr)->size(), 5);

  // The reader was not told to start: it reads at the end.
  EXPECT_EQ(start(dir_.path(), false).finish(nullptr)->size(), 5);

  // An error of the thread comes out of finish(); without it the error is dropped.
  auto bad = start("/nonexistent", true);
  EXPECT_THROW((void)bad.finish(nullptr), DataError);
  (void)start("/nonexistent", true);
}

TEST_F(FashionMnist, NamesWhatIsMissing) {
  const auto message = [this] {
    try {
      (void)open_fashion_mnist({.dir = dir_.path()}, Split::kTest, nullptr);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  EXPECT_THAT(
      message,
      AllOf(HasSubstr(dir_.path()), HasSubstr("has no t10k-images-idx3-ubyte"),
            HasSubstr("train-labels-idx1-ubyte"), HasSubstr("dataset-fashion-mnist")));
}

TEST_F(FashionMnist, NamesAMismatchOfCounts) {
  write_labels({1, 1, 1, 1});
  EXPECT_THAT(error_of_open(),
              AllOf(HasSubstr("train-labels-idx1-ubyte: at byte 4"),
                    HasSubstr("4 labels; expected 5"), HasSubstr("train-images")));
}

TEST_F(FashionMnist, NamesALabelOutOfRange) {
  write_labels({1, 2, 3, 10, 4});
  EXPECT_THAT(error_of_open(), AllOf(HasSubstr("at byte 11"), HasSubstr("label 10"),
                                     HasSubstr("sample 3"), HasSubstr("0 to 9")));
}

TEST_F(FashionMnist, NamesImagesOfAnotherSize) {
  write_file(dir_ / "train-images-idx3-ubyte", idx({5, 2, 3}, std::string(30, 'x')));
  EXPECT_THAT(error_of_open(), HasSubstr("images of 2x3; expected 28x28"));
}

// The real files. Sums were computed in Python from the published files.
TEST(FashionMnistFiles, AreTheKnownOnes) {
  const auto test = open_fashion_mnist({}, Split::kTest, nullptr);
  ASSERT_EQ(test->size(), 10'000);
  const auto files = read_fashion_mnist(FashionMnistOptions{}.dir, Split::kTest);
  EXPECT_EQ(files.images.sum(at::kLong).item<int64_t>(), 573'469'082);
  EXPECT_EQ(files.labels.bincount().equal(at::full({10}, 1000, at::kLong)), true);
  const auto first = test->gather_all(std::vector<int64_t>{0, 1, 2});
  EXPECT_TRUE(at::equal(first.at("target"), at::tensor({9, 2, 1}, at::kLong)));
}

}  // namespace
}  // namespace cohort
