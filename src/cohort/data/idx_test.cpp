// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/idx.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/memory.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/testing_files.h"

namespace cohort {
namespace {

using test::gzip;
using test::idx;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;

class Idx : public testing::Test {
 protected:
  // The message of the error that reading `bytes` gives, or "" if there is none.
  std::string error_of(const std::string& bytes, int dims = 2) {
    write_file(path_, bytes);
    try {
      (void)read_idx(path_, dims);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
      return error.what();
    }
    return "";
  }

  test::TempFolder dir_;
  std::string path_ = dir_ / "some-idx2-ubyte";
  std::string good_ = idx({2, 3}, "abcdef");
};

TEST_F(Idx, ReadsPlainPackedAndSeveralMembers) {
  const auto expected = at::tensor({97, 98, 99, 100, 101, 102}, at::kByte).view({2, 3});
  const auto members = gzip(good_.substr(0, 3)) + gzip(good_.substr(3, 5)) + gzip("") +
                       gzip(good_.substr(8));
  for (const auto& bytes : {good_, gzip(good_), members}) {
    write_file(path_, bytes);
    EXPECT_TRUE(at::equal(read_idx(path_, 2), expected));
  }
}

TEST_F(Idx, ReadsWhatPacksExtremelyWell) {
  const std::string zeros(3'000'000, '\0');
  write_file(path_, gzip(idx({1000, 3000}, zeros)));
  const auto data = read_idx(path_, 2);
  EXPECT_EQ(data.sizes(), (std::vector<int64_t>{1000, 3000}));
  EXPECT_EQ(data.count_nonzero().item<int64_t>(), 0);
}

TEST_F(Idx, ReadsAnEmptyArray) {
  write_file(path_, idx({0, 3}, ""));
  EXPECT_EQ(read_idx(path_, 2).sizes(), (std::vector<int64_t>{0, 3}));
}

TEST_F(Idx, EveryTruncationIsNamed) {
  for (size_t n = 0; n < good_.size(); ++n) {
    EXPECT_THAT(error_of(good_.substr(0, n)),
                AllOf(HasSubstr("truncated"), HasSubstr(text("at byte ", n))))
        << n;
  }
}

TEST_F(Idx, EveryTruncationOfAPackedFileIsNamed) {
  const auto packed = gzip(good_);
  for (size_t n = 2; n < packed.size(); ++n) {
    EXPECT_THAT(error_of(packed.substr(0, n)),
                AllOf(HasSubstr("truncated"), HasSubstr(text("at byte ", n))))
        << n;
  }
  // Whole gzip, too few bytes inside.
  EXPECT_THAT(error_of(gzip(good_.substr(0, 13))),
              AllOf(HasSubstr("truncated"), HasSubstr("at byte 13 of the unpacked"),
                    HasSubstr("expected 18 bytes"), HasSubstr("found 13")));
}

TEST_F(Idx, EveryAlteredByteOfAPackedFileIsFound) {
  const auto packed = gzip(good_);
  for (size_t n = 0; n < packed.size(); ++n) {
    // Bytes 4 to 9 are time, compression level and system: they say nothing about the
    // contents and nothing checks them.
    if (n >= 4 && n < 10) continue;
    auto altered = packed;
    altered[n] = static_cast<char>(altered[n] ^ 0x5a);
    EXPECT_NE(error_of(altered), "") << n;
  }
}

TEST_F(Idx, AChecksumThatDoesNotMatchIsNamed) {
  auto packed = gzip(good_);
  packed[packed.size() - 5] = static_cast<char>(packed[packed.size() - 5] ^ 1);
  EXPECT_THAT(error_of(packed),
              AllOf(HasSubstr("altered"), HasSubstr("incorrect data check"),
                    HasSubstr("18 bytes were unpacked")));
}

TEST_F(Idx, ExtraBytesAreNamed) {
  EXPECT_THAT(error_of(good_ + "xy"),
              AllOf(HasSubstr("extra bytes"), HasSubstr("at byte 18"),
                    HasSubstr("expected 18 bytes (12 of header and 2x3), found 20")));
  EXPECT_THAT(error_of(gzip(good_) + "xy"), HasSubstr("incorrect header check"));
}

TEST_F(Idx, AnotherMagicNumberIsNamed) {
  EXPECT_THAT(error_of(good_, 3),
              AllOf(HasSubstr("at byte 0"), HasSubstr("0x00000802"),
                    HasSubstr("expected 0x00000803 (unsigned bytes, 3 dimensions)")));
  EXPECT_THAT(error_of("<html>this is not the file</html>"), HasSubstr("0x3c68746d"));
}

TEST_F(Idx, AbsurdSizesAreRefused) {
  EXPECT_THAT(error_of(idx({0xffffffff, 0xffffffff}, "abc")),
              AllOf(HasSubstr("at byte 4"), HasSubstr("too large")));
  EXPECT_THAT(error_of(idx({0xffffffff, 1000}, "abc")), HasSubstr("truncated"));
  EXPECT_THAT(error_of(idx({0, 0xffffffff, 0xffffffff}, ""), 3),
              HasSubstr("too large"));
}

// A gigabyte of zeros packs into a megabyte: no more of it is unpacked than the header
// announces.
TEST_F(Idx, NoMoreIsUnpackedThanTheHeaderSays) {
  std::string bomb = idx({2, 3}, "abcdef") + std::string(200'000'000, '\0');
  const auto packed = gzip(bomb);
  bomb = {};
  EXPECT_LT(packed.size(), 300'000u);
  const int64_t before = process_peak_memory();
  EXPECT_THAT(error_of(packed),
              AllOf(HasSubstr("extra bytes"), HasSubstr("expected 18 bytes")));
  EXPECT_LT(process_peak_memory() - before, 50'000'000);
}

TEST_F(Idx, AFileIsNoLargerThanItsHeaderSays) {
  write_file(path_, good_);
  std::filesystem::resize_file(path_, 1'000'000'000'000);
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read_idx(path_, 2); }),
              AllOf(HasSubstr("extra bytes"), HasSubstr("1000000000000")));
}

TEST_F(Idx, WhatMemoryCannotHoldIsRefused) {
  write_file(path_, idx({1'000'000, 1'000'000}, ""));
  std::filesystem::resize_file(path_, 1'000'000'000'012);
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read_idx(path_, 2); }),
              AllOf(HasSubstr(path_), HasSubstr("memory")));
}

TEST_F(Idx, WhatCannotBeReadIsNamed) {
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read_idx(dir_ / "nothing", 1); }),
              AllOf(HasSubstr(dir_ / "nothing"), HasSubstr("No such file")));
  EXPECT_THROW((void)read_idx(dir_.path(), 1), DataError);
}

}  // namespace
}  // namespace cohort
