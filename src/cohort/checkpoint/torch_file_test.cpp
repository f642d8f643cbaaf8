// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cohort/checkpoint/pickle.h"
#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace cohort::test;  // NOLINT: a test

class TorchFile : public CheckpointFolder {
 protected:
  TorchFile() : path_(dir_ + "/x.pt") {}
  std::string path_;
};

// What PyTorch wrote: torch_exchange.py golden. A state_dict with its _metadata.
TEST_F(TorchFile, ReadsAStateDictOfPyTorch) {
  const auto tensors = read_torch_file(std::string(std::getenv("COHORT_SOURCE")) +
                                       "/src/cohort/checkpoint/torch_file_golden.pt");
  ASSERT_EQ(tensors.size(), 7u);
  EXPECT_EQ(tensors[0].name, "0.weight");
  EXPECT_TRUE(at::equal(tensors[0].tensor, at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_EQ(tensors[3].name, "1.bias");
  EXPECT_TRUE(at::equal(tensors[3].tensor, at::arange(3, at::kFloat) + 3));
  EXPECT_EQ(tensors[6].name, "1.num_batches_tracked");
  EXPECT_EQ(tensors[6].tensor.item<int64_t>(), 6);
}

TEST_F(TorchFile, ReadsBackWhatItWrote) {
  const auto base = at::arange(100, at::kFloat);
  const std::vector<NamedTensor> tensors = {
      {"z", base.narrow(0, 10, 20).view({4, 5}).t()},
      {"a", at::arange(5).to(at::kBFloat16)},
      {"none", at::empty({0, 2})},
      {"scalar", at::full({}, 3, at::kLong)}};
  write_torch_file(path_, tensors);
  EXPECT_LT(fs::file_size(path_), 3000u);
  const auto read = read_torch_file(path_);
  ASSERT_EQ(read.size(), tensors.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, tensors[i].name);
    EXPECT_EQ(read[i].tensor.scalar_type(), tensors[i].tensor.scalar_type());
    EXPECT_TRUE(at::equal(read[i].tensor, tensors[i].tensor)) << read[i].name;
  }
}

TEST_F(TorchFile, OtherFilesAreNamed) {
  write_torch_file(path_, std::vector<NamedTensor>{{"w", at::ones({8})}});
  const auto whole = read_file(path_);
  for (size_t size = 0; size < whole.size(); size += 41) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << whole.substr(0, size);
    EXPECT_THAT(error_of([&] { (void)read_torch_file(path_); }), HasSubstr(path_))
        << size;
  }
  EXPECT_THAT(error_of([&] { (void)read_torch_file(dir_ + "/no"); }), HasSubstr("/no"));
  fs::remove(path_);
  std::ofstream(path_, std::ios::binary) << whole;
  EXPECT_THAT(error_of([&] { (void)read_torch_file(path_, "model"); }),
              AllOf(HasSubstr("'model'"), HasSubstr("'w'")));
  EXPECT_THAT(error_of([&] { write_torch_file(dir_ + "/no/x.pt", {}); }),
              HasSubstr("/no/x.pt"));
}

// {"w": tensor of 6, "n": 7}, as torch.save pickles an OrderedDict.
const char kPickleBytes[] =
    "\x80\x02"
    "ccollections\nOrderedDict\nq\x00)Rq\x01("
    "X\x01\0\0\0wq\x02"
    "ctorch._utils\n_rebuild_tensor_v2\nq\x03("
    "(X\x07\0\0\0storageq\x04"
    "ctorch\nFloatStorage\nq\x05X\x01\0\0\0"
    "0q\x06"
    "X\x03\0\0\0cpuq\x07K\x06tq\x08QK\x00K\x02K\x03\x86q\x09K\x03K\x01\x86q\x0a"
    "\x89"
    "ccollections\nOrderedDict\nq\x0b)Rq\x0ctq\x0dRq\x0e"
    "X\x01\0\0\0nq\x0fK\x07u}q\x10X\x09\0\0\0_metadataq\x11}sb.";
const std::string kPickle(kPickleBytes, sizeof(kPickleBytes) - 1);

PickleValue unpickle(const std::string& bytes) {
  return read_pickle(bytes, [](const PickleStorage& want) {
    if (want.numel > 1000) throw CheckpointError("a storage that is not there");
    return at::arange(want.numel, at::kFloat);
  });
}

TEST(Pickle, ReadsAStateDict) {
  const auto dict = unpickle(kPickle);
  ASSERT_EQ(dict.kind, PickleValue::Kind::kDict);
  ASSERT_EQ(dict.items->values.size(), 4u);
  EXPECT_EQ(dict.items->values[0].text(), "w");
  EXPECT_TRUE(
      at::equal(dict.items->values[1].tensor, at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_EQ(dict.items->values[3].number, 7);
}

// Whatever is in it, reading ends with a value or an error, and touches no other
// memory.
TEST(Pickle, NoAlteredByteIsWorseThanAnError) {
  int refused = 0;
  for (size_t i = 0; i < kPickle.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      auto altered = kPickle;
      altered[i] = static_cast<char>(value);
      refused += error_of([&] {
                   const auto read = unpickle(altered);
                   if (read.kind != PickleValue::Kind::kDict) return;
                   for (const auto& item : read.items->values)
                     if (item.tensor.defined()) (void)item.tensor.contiguous();
                 }) != "no error";
    }
    refused += error_of([&] { (void)unpickle(kPickle.substr(0, i)); }) != "no error";
  }
  EXPECT_GT(refused, 10'000);
}

TEST(Pickle, NestingIsBounded) {
  const auto nested = [](const std::string& one) {
    std::string bytes = ")";
    for (int i = 0; i < 100'000; ++i) bytes += one;
    return error_of([&] { (void)unpickle(bytes + "."); });
  };
  EXPECT_THAT(nested("\x85"), HasSubstr("too deep"));  // ((((...
  EXPECT_THAT(nested("q\x01]h\x01"
                     "a"),
              HasSubstr("too deep"));  // [[[[...
  // A list that grows once it is inside another, and one inside itself.
  EXPECT_THAT(error_of([] {
                (void)unpickle(
                    "]q\x01]h\x01"
                    "ah\x01Na.");
              }),
              HasSubstr("nested"));
  EXPECT_THAT(error_of([] {
                (void)unpickle(
                    "]q\x01h\x01"
                    "a.");
              }),
              HasSubstr("nested"));
}

}  // namespace
}  // namespace cohort
