// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_folder.h"
#include "cohort/step/testing_tensors.h"
#include "cohort/step/weights_hash.h"

namespace cohort {
namespace {

using test::some_tensors;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Safetensors : public testing::Test {
 protected:
  // The message reading these bytes gives, or "" if they can be read.
  std::string error_of(const std::string& bytes) {
    std::filesystem::remove(path_);  // truncating a file makes some systems sync it
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      (void)read_safetensors(path_);
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
      return error.what();
    }
    return "";
  }

  // A file with this header and `data` bytes of data.
  static std::string file(const std::string& json, size_t data) {
    const uint64_t length = json.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + json + std::string(data, '\0');
  }

  std::string error_of_header(const std::string& json, size_t data = 0) {
    return error_of(file(json, data));
  }

  std::string error_of_write(const std::vector<NamedTensor>& tensors) {
    try {
      write_safetensors(path_, tensors);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }

  test::TempFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(Safetensors, ReadsBackWhatItWrote) {
  write_safetensors(path_, some_tensors(), {{"format", "pt"}});
  const auto file = read_safetensors(path_);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors[0].name, "a.steps");
  EXPECT_EQ(file.tensors[1].name, "b.weight");
  EXPECT_EQ(file.tensors[2].name, "mask");
  EXPECT_EQ(file.tensors[3].name, "none");
  EXPECT_TRUE(at::equal(file.tensors[0].tensor, some_tensors()[1].tensor));
  EXPECT_TRUE(at::equal(file.tensors[1].tensor, some_tensors()[0].tensor));
  EXPECT_TRUE(at::equal(file.tensors[2].tensor, some_tensors()[2].tensor));
  EXPECT_EQ(file.tensors[3].tensor.sizes(), (std::vector<int64_t>{0, 4}));
}

TEST_F(Safetensors, KeepsEveryDtypeBitForBit) {
  std::vector<NamedTensor> tensors;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                           at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.push_back({c10::toString(dtype), at::arange(5).to(dtype)});
  }
  write_safetensors(path_, tensors);
  const auto file = read_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(),
                     [&, n = name](const auto& entry) { return entry.name == n; });
    ASSERT_NE(found, file.tensors.end()) << name;
    EXPECT_EQ(found->tensor.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(at::equal(found->tensor, tensor)) << name;
  }
}

TEST_F(Safetensors, WritesTheElementsOfAView) {
  const auto whole = at::arange(12, at::kFloat).view({3, 4});
  write_safetensors(path_, std::vector<NamedTensor>{{"t", whole.t().narrow(0, 1, 2)}});
  const auto file = read_safetensors(path_);
  EXPECT_TRUE(at::equal(file.tensors[0].tensor, whole.t().narrow(0, 1, 2)));
}

// The bytes themselves, so that the file does not change from version to version.
TEST_F(Safetensors, BytesAreTheFormat) {
  write_safetensors(path_, std::vector<NamedTensor>{{"u", at::tensor({9}, at::kByte)},
                                                    {"z", at::tensor({1.0f})}});
  const std::string json = R"({"u":{"data_offsets":[4,5],"dtype":"U8","shape":[1]},)"
                           R"("z":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  const auto padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  EXPECT_EQ(read_file(path_), file(padded, 0) + std::string("\0\0\x80\x3f\x09", 5));
}

// What the Python package (0.8.0) writes for some_tensors().
TEST_F(Safetensors, ReadsWhatPythonWrote) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},)"
      R"("a.steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[32,32]},)"
      R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[32,35]}})";
  const char data[] =
      "\x07\0\0\0\0\0\0\0"
      "\0\0\x80\x3f\0\0\x20\xc0\0\0\x50\x40\0\0\0\0\0\0\xa0\x40\0\0\xc0\x40"
      "\1\0\1";
  ASSERT_EQ(error_of(file(json, 0) + std::string(data, sizeof(data) - 1)), "");
  const auto read = read_safetensors(path_);
  EXPECT_EQ(read.metadata.at("format"), "pt");
  EXPECT_EQ(weights_hash(read.tensors), weights_hash(some_tensors()));
}

TEST_F(Safetensors, ReplacesAFileAndLeavesNothingBeside) {
  write_safetensors(path_, some_tensors());
  write_safetensors(path_, {});
  EXPECT_TRUE(read_safetensors(path_).tensors.empty());
  EXPECT_NE(error_of_write({{"x", at::zeros({1})}, {"x", at::zeros({1})}}), "");
  EXPECT_TRUE(read_safetensors(path_).tensors.empty());  // still the old one
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 1);
}

TEST_F(Safetensors, RefusesWhatTheFormatCannotHold) {
  EXPECT_THAT(error_of_write({{"x", at::zeros({1})}, {"x", at::ones({1})}}),
              AllOf(HasSubstr("'x'"), HasSubstr("twice")));
  EXPECT_THAT(error_of_write({{"c", at::zeros({1}, at::kComplexFloat)}}),
              AllOf(HasSubstr("'c'"), HasSubstr("ComplexFloat"), HasSubstr("F32")));
  EXPECT_THAT(error_of_write({{"u", Tensor()}}), HasSubstr("undefined"));
  EXPECT_THAT(error_of_write({{"__metadata__", at::zeros({1})}}),
              HasSubstr("reserves"));
  EXPECT_THAT(error_of_write({{"\xff", at::zeros({1})}}), HasSubstr("UTF-8"));
  path_ = folder_ / "no/such/folder";
  EXPECT_THAT(error_of_write({}), HasSubstr(path_));
}

TEST_F(Safetensors, EveryTruncationIsNamed) {
  write_safetensors(path_, some_tensors(), {{"format", "pt"}});
  const auto whole = read_file(path_);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(error_of(whole.substr(0, n)), HasSubstr("truncated")) << n;
  }
  EXPECT_THAT(error_of(whole + "x"), HasSubstr("extra bytes"));
}

// Any byte may be anything: reading it gives tensors or a CheckpointError.
TEST_F(Safetensors, NoAlteredByteIsWorseThanAnError) {
  write_safetensors(path_, some_tensors(), {{"format", "pt"}});
  const auto whole = read_file(path_);
  int refused = 0;
  for (size_t n = 0; n < whole.size(); ++n) {
    for (const int flip : {0x01, 0x5a}) {
      auto altered = whole;
      altered[n] = static_cast<char>(altered[n] ^ flip);
      refused += !error_of(altered).empty();
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()));
}

TEST_F(Safetensors, BadHeadersAreNamed) {
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  EXPECT_EQ(error_of_header(entry("[2]", "[0,8]"), 8), "");
  EXPECT_THAT(error_of_header(entry("[2]", "[0,12]"), 12),
              AllOf(HasSubstr("'w'"), HasSubstr("12 bytes"), HasSubstr("need 8")));
  EXPECT_THAT(error_of_header(entry("[2]", "[4,12]"), 12),
              AllOf(HasSubstr("begin at 4"), HasSubstr("expected 0")));
  EXPECT_THAT(error_of_header(entry("[2]", "[8,0]"), 8), HasSubstr("backwards"));
  EXPECT_THAT(error_of_header(entry("[2]", "[0,8]"), 12),
              AllOf(HasSubstr("extra bytes"), HasSubstr("12")));
  EXPECT_THAT(error_of_header(entry("[2]", "[0,8]"), 7),
              AllOf(HasSubstr("truncated"), HasSubstr("'w'")));
  EXPECT_THAT(error_of_header(entry("[-2]", "[0,8]"), 8), HasSubstr("from 0 on"));
  EXPECT_THAT(error_of_header(entry("[2.0]", "[0,8]"), 8), HasSubstr("from 0 on"));
  EXPECT_THAT(error_of_header(entry("2", "[0,8]"), 8), HasSubstr("expected an array"));
  EXPECT_THAT(error_of_header(entry("[2]", "[0]"), 8), HasSubstr("expected 2"));
  EXPECT_THAT(error_of_header(entry("[4294967296,4294967296]", "[0,8]"), 8),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(error_of_header(entry("[0,4294967296,4294967296]", "[0,0]"), 0),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(error_of_header(entry("[18446744073709551615]", "[0,8]"), 8),
              HasSubstr("from 0 on"));
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_THAT(error_of_header(entry(ones + "]", "[0,4]"), 4),
              HasSubstr("65 dimensions; legal: at most 64"));
}

TEST_F(Safetensors, OtherFilesAreNotTakenForOurs) {
  EXPECT_THAT(error_of(""), HasSubstr("truncated: 0 bytes"));
  EXPECT_THAT(error_of("PK\x03\x04 this is a zip file"), HasSubstr("header of"));
  EXPECT_THAT(error_of_header("[]"), HasSubstr("start with '{'"));
  EXPECT_THAT(error_of_header(R"({"w":})"),
              AllOf(HasSubstr("at byte 13"), HasSubstr("not JSON")));
  EXPECT_THAT(error_of_header(R"({"w":3})"), HasSubstr("'w': is not an object"));
  EXPECT_THAT(error_of_header(R"({"w":{"shape":[],"data_offsets":[0,0]}})"),
              HasSubstr("dtype is missing"));
  EXPECT_THAT(
      error_of_header(R"({"w":{"dtype":"Q4","shape":[],"data_offsets":[0,0]}})"),
      AllOf(HasSubstr("dtype Q4"), HasSubstr("legal: F64 F32")));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"a":1}})"),
              HasSubstr("not a string"));
  EXPECT_THAT(error_of_header(std::string(100'000, '[')), StartsWith("[checkpoint"));
  path_ = folder_ / "nothing";
  EXPECT_THROW((void)read_safetensors(path_), CheckpointError);
  EXPECT_THROW((void)read_safetensors(folder_.path()), CheckpointError);
}

TEST_F(Safetensors, ANameTwiceIsRefused) {
  const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":)";
  EXPECT_THAT(error_of_header("{" + w + "[0,1]}," + w + "[1,2]}}", 2),
              HasSubstr("'w' twice"));
}

TEST_F(Safetensors, TensorsMayNotOverlapOrLeaveGaps) {
  const auto two = [](const char* a, const char* b) {
    return text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", a,
                R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", b, "}}");
  };
  EXPECT_EQ(error_of_header(two("[2,4]", "[0,2]"), 4), "");
  EXPECT_THAT(error_of_header(two("[0,2]", "[1,3]"), 3), HasSubstr("'b'"));
  EXPECT_THAT(error_of_header(two("[0,2]", "[3,5]"), 5), HasSubstr("begin at 3"));
}

TEST_F(Safetensors, ABoolIsZeroOrOne) {
  auto bytes = file(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bytes.back() = 2;
  EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("'m'"), HasSubstr("byte 1 is 2")));
}

}  // namespace
}  // namespace cohort
