// SPDX-License-Identifier: Apache-2.0
// Small files that say that they are large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/checkpoint/testing_zip.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/core/memory.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace cohort::test;  // NOLINT: a test

const std::string kNumber(std::string("J\0\0\x01\0", 5));  // 65,536
const std::string kZero(std::string("K\0", 2));

class HostileFile : public CheckpointFolder {
 protected:
  void write(const std::string& bytes) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  // A zip of these records and the pickle.
  std::string error_of_zip(const std::string& pickle, std::vector<ZipRecord> more,
                           bool wide = false) {
    more.push_back({.name = "x/data.pkl", .bytes = pickle});
    more.push_back({.name = "x/version", .bytes = "3\n"});
    write(zip_of(more, wide));
    return error_of([&] { (void)open_tensors(path_); });
  }
  // A safetensors file of one tensor of so many bytes, none of them on the disk.
  void write_sparse(int64_t bytes) {
    const std::string header = text(R"({"w":{"dtype":"U8","shape":[)", bytes,
                                    R"(],"data_offsets":[0,)", bytes, "]}}");
    const uint64_t length = header.size();
    write(std::string(reinterpret_cast<const char*>(&length), 8) + header);
    fs::resize_file(path_, 8 + header.size() + static_cast<uint64_t>(bytes));
  }

  std::string path_ = dir_ + "/x";
};

// 2^36 elements, all of them the one that is stored.
TEST_F(HostileFile, ATensorHasNoMoreElementsThanItsStorage) {
  const std::string size = kNumber + kNumber + "K\x10\x87";
  const std::string stride = kZero + kZero + kZero + "\x87";
  const auto error = error_of_zip(pickled_tensor(size, stride),
                                  {{.name = "x/data/0", .bytes = "abcd"}});
  EXPECT_LT(fs::file_size(path_), 700u);
  EXPECT_THAT(error, AllOf(HasSubstr(path_), HasSubstr("68719476736 elements"),
                           HasSubstr("storage of 1")));
}

TEST_F(HostileFile, WhatAnUnknownFunctionMakesOfATensorIsNone) {
  const std::string one = "K\x01\x85";
  const std::vector<ZipRecord> tensor{{.name = "x/data/0", .bytes = "abcd"}};
  const auto error_of_call = [&](const std::string& function) {
    return error_of_zip(pickled_tensor(one, one, "K\x01", function), tensor);
  };
  EXPECT_EQ(error_of_call("ctorch._utils\n_rebuild_parameter\n"), "no error");
  EXPECT_THAT(error_of_call("cmine\nwrap\n"), HasSubstr("has no tensor"));
}

// As torch.save writes files of more than 4 GB.
TEST_F(HostileFile, AWideDirectoryIsReadToItsEnd) {
  const std::string one = "K\x01\x85";
  const std::vector<ZipRecord> tensor{{.name = "x/data/0", .bytes = "abcd"}};
  EXPECT_EQ(error_of_zip(pickled_tensor(one, one), tensor, /*wide=*/true), "no error");
  EXPECT_THAT(error_of_zip(pickled_tensor(one, one), {}, /*wide=*/true),
              HasSubstr("data/0"));
}

TEST_F(HostileFile, ARecordLiesInsideItsFile) {
  const std::string one = "K\x01\x85";
  EXPECT_EQ(
      error_of_zip(pickled_tensor(one, one), {{.name = "x/data/0", .bytes = "abcd"}}),
      "no error");
  const std::string giant(std::string("\x8a\x05\0\0\0\0\x01", 7));  // 2^32
  EXPECT_THAT(error_of_zip(pickled_tensor(one, one, giant),
                           {{.name = "x/data/0", .bytes = "abcd", .size = 0xfffffff0}}),
              AllOf(HasSubstr(path_), HasSubstr("x/data/0")));
  EXPECT_THAT(error_of_zip(pickled_tensor(one, one),
                           {{.name = "x/data/0", .bytes = "abcd", .offset = 90'000}}),
              AllOf(HasSubstr(path_), HasSubstr("x/data/0")));
  EXPECT_THAT(error_of_zip(pickled_tensor(one, one),
                           {{.name = "x/data/0", .bytes = "abcd", .method = 8}}),
              AllOf(HasSubstr(path_), HasSubstr("packed")));
}

// A thousand names for the same bytes are not a thousand times the bytes.
TEST_F(HostileFile, RecordsAreTogetherNoLargerThanTheirFile) {
  std::vector<ZipRecord> records = {
      {.name = "x/data/0", .bytes = std::string(4000, 'a')}};
  for (int i = 1; i < 1000; ++i)
    records.push_back({.name = text("x/data/", i), .size = 4000, .offset = 0});
  const std::string one = "K\x01\x85";
  EXPECT_THAT(
      error_of_zip(pickled_tensor(one, one, std::string("M\xe8\x03", 3)), records),
      AllOf(HasSubstr(path_), HasSubstr("more than the file")));
}

constexpr int64_t kTerabyte = 1'000'000'000'000;

TEST_F(HostileFile, WhatMemoryCannotHoldIsRefusedInOneLine) {
  write_sparse(kTerabyte);
  const auto error = error_of([&] { (void)read_safetensors(path_); });
  EXPECT_THAT(
      error, AllOf(HasSubstr(path_), HasSubstr("'w'"), HasSubstr("1000000000000 bytes"),
                   HasSubstr("memory"), Not(HasSubstr("\n"))));
}

// What is in a file is known from its header: nothing else of it is read.
TEST_F(HostileFile, AHeaderIsShownWithoutTheTensors) {
  write_sparse(kTerabyte);
  const auto source = open_tensors(path_);
  ASSERT_EQ(source.tensors.size(), 1u);
  EXPECT_EQ(source.tensors[0].spec.bytes(), kTerabyte);
  EXPECT_THAT(error_of([&] { (void)source.read("w"); }), HasSubstr("memory"));
}

TEST_F(HostileFile, AFileOfTextIsNoLargerThanMemory) {
  fs::create_directory(root_);
  std::ofstream(root_ + "/manifest.json") << "{";
  fs::resize_file(root_ + "/manifest.json", kTerabyte);
  EXPECT_THAT(error_of([&] { (void)open_tensors(root_); }),
              AllOf(HasSubstr("manifest.json"), HasSubstr("1000000000000 bytes")));
}

}  // namespace
}  // namespace cohort
