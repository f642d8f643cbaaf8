// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/cifar10.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/testing_files.h"
#include "cohort/data/testing_node.h"

namespace cohort {
namespace {

using test::write_file;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRecords = 3;  // in a file

// Records whose pixels tell where they come from.
std::string records_of(int file, int64_t count = kRecords) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    bytes += static_cast<char>((file + i) % 10);
    for (int64_t p = 0; p < 3072; ++p)
      bytes += static_cast<char>((p * 7 + file * 31 + i * 101 + p / 1024) % 256);
  }
  return bytes;
}

std::unique_ptr<Dataset> open_cifar10(const Cifar10Options& options, Split split,
                                      Communicator* node) {
  return open_images(cifar10(options, split), node);
}

class Cifar10 : public testing::Test {
 protected:
  Cifar10() {
    for (int file = 1; file <= 5; ++file)
      write_file(dir_ / text("data_batch_", file, ".bin"), records_of(file));
    write_file(dir_ / "test_batch.bin", records_of(9));
  }

  Cifar10Options options(bool normalize = false) {
    return {.dir = dir_.path(), .normalize = normalize, .records_per_file = kRecords};
  }

  std::string error_of_open(Split split = Split::kTrain) {
    return test::message_of<DataError>(
        [&] { (void)open_cifar10(options(), split, nullptr); });
  }

  test::TempFolder dir_;
};

TEST_F(Cifar10, SamplesAreTheRecordsInTheOrderOfTheFiles) {
  const auto data = open_cifar10(options(), Split::kTrain, nullptr);
  EXPECT_EQ(data->describe(), "cifar-10 train: 15 images 3x32x32, 10 classes");
  const std::vector<int64_t> ids = {14, 0, 4};
  const Batch batch = data->gather_all(ids);
  EXPECT_TRUE(at::equal(batch.at("target"), at::tensor({7, 1, 3}, at::kLong)));
  for (size_t row = 0; row < ids.size(); ++row) {
    const int64_t file = ids[row] / kRecords + 1, record = ids[row] % kRecords;
    std::string bytes = records_of(static_cast<int>(file));
    const Tensor pixels =
        at::from_blob(bytes.data() + record * 3073 + 1, {3, 32, 32}, at::kByte);
    EXPECT_TRUE(at::equal(batch.at("input")[row], pixels.to(at::kFloat).div(255)))
        << row;
  }
  EXPECT_EQ(open_cifar10(options(), Split::kTest, nullptr)->size(), kRecords);
}

TEST_F(Cifar10, NormalizesEachChannel) {
  const std::vector<int64_t> ids = {2, 8};
  const Tensor plain =
      open_cifar10(options(), Split::kTrain, nullptr)->gather_all(ids).at("input");
  const Tensor scaled =
      open_cifar10(options(true), Split::kTrain, nullptr)->gather_all(ids).at("input");
  const Tensor mean = at::tensor({0.4914f, 0.4822f, 0.4465f}).view({3, 1, 1});
  const Tensor deviation = at::tensor({0.2470f, 0.2435f, 0.2616f}).view({3, 1, 1});
  EXPECT_TRUE(at::equal(scaled, plain.sub(mean).div(deviation)));
}

TEST_F(Cifar10, IsFoundWhereTheArchiveWasUnpacked) {
  const auto folder = std::filesystem::path(dir_ / "cifar-10-batches-bin");
  std::filesystem::create_directory(folder);
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin"})
    std::filesystem::rename(dir_ / name, folder / name);
  EXPECT_EQ(error_of_open(), "no error");
}

TEST_F(Cifar10, OnlyTheFirstRankReads) {
  for (const int ranks : {1, 2, 3}) {
    const std::vector<int64_t> ids = {0, 14, 7};
    const auto expected =
        open_cifar10(options(), Split::kTrain, nullptr)->gather_all(ids);
    test::run_node(ranks, [&](Communicator& node) {
      auto mine = options();
      if (node.rank() != 0) mine.dir = "/nonexistent";
      const auto batch = open_cifar10(mine, Split::kTrain, &node)->gather_all(ids);
      EXPECT_TRUE(at::equal(batch.at("input"), expected.at("input")));
      EXPECT_TRUE(at::equal(batch.at("target"), expected.at("target")));
    });
  }
}

TEST_F(Cifar10, NamesWhatIsMissing) {
  std::filesystem::remove(dir_ / "data_batch_4.bin");
  EXPECT_THAT(error_of_open(),
              AllOf(HasSubstr(dir_.path() + ": has no data_batch_4.bin"),
                    HasSubstr("test_batch.bin"), HasSubstr("data.synthetic=true")));
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { (void)open_cifar10({}, Split::kTrain, nullptr); }),
              HasSubstr("data.dir is not set"));
}

TEST_F(Cifar10, NamesTheRecordAFileEndsIn) {
  auto bytes = records_of(2);
  bytes.resize(3073 + 100);
  write_file(dir_ / "data_batch_2.bin", bytes);
  EXPECT_THAT(error_of_open(),
              AllOf(HasSubstr("data_batch_2.bin: truncated in record 1: 3173 bytes"),
                    HasSubstr("expected 9219, 3 records of 3073")));
  write_file(dir_ / "data_batch_2.bin", records_of(2, 4));
  EXPECT_THAT(error_of_open(), HasSubstr("extra bytes after record 2: 12292 bytes"));
  write_file(dir_ / "data_batch_2.bin", "");
  EXPECT_THAT(error_of_open(), HasSubstr("truncated in record 0: 0 bytes"));
}

TEST_F(Cifar10, NamesALabelOutOfRange) {
  auto bytes = records_of(3);
  bytes[2 * 3073] = 10;
  write_file(dir_ / "data_batch_3.bin", bytes);
  EXPECT_THAT(error_of_open(),
              AllOf(HasSubstr("data_batch_3.bin: at byte 6146"),
                    HasSubstr("label 10 of record 2"), HasSubstr("expected 0 to 9")));
}

}  // namespace
}  // namespace cohort
