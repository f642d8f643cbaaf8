// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/weights_hash.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/testing_tensors.h"

namespace cohort {
namespace {

using test::some_tensors;
using testing::HasSubstr;

// Frozen: computed with docs/formats/weights_hash.py from a file of these tensors.
TEST(WeightsHash, KnownAnswers) {
  EXPECT_EQ(weights_hash({}), "0000000000000000");
  EXPECT_EQ(weights_hash(some_tensors()), "341433a904151d26");
}

TEST(WeightsHash, SeesNameDtypeShapeAndBitsButNotOrderOrStrides) {
  const auto base = some_tensors();
  const auto hash = weights_hash(base);
  EXPECT_EQ(weights_hash(std::vector<NamedTensor>(base.rbegin(), base.rend())), hash);

  auto changed = base;
  changed[0].tensor = base[0].tensor.t().contiguous().t();
  EXPECT_EQ(weights_hash(changed), hash);

  changed[0].tensor = base[0].tensor.view({3, 2});
  EXPECT_NE(weights_hash(changed), hash);
  changed[0].tensor = base[0].tensor.view(at::kInt);
  EXPECT_NE(weights_hash(changed), hash);
  changed[0].tensor = base[0].tensor.clone();
  changed[0].tensor.mutable_data_ptr<float>()[3] = -0.0f;
  EXPECT_NE(weights_hash(changed), hash);
  changed = base;
  changed[0].name = "b.weighs";
  EXPECT_NE(weights_hash(changed), hash);
}

// Every cut of a tensor in memory order, given as where its pieces end.
uint64_t hash_of_pieces(const std::string& name, const Tensor& tensor,
                        const std::vector<int64_t>& ends) {
  const StateTensor whole{.spec = spec_of(name, tensor), .order = memory_order(tensor)};
  const Tensor flat = tensor.as_strided({tensor.numel()}, {1});
  uint64_t sum = hash_term(whole.spec);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    StatePiece piece{whole, flat.narrow(0, begin, end - begin)};
    piece.tensor.spec.begin = begin;
    piece.tensor.spec.end = end;
    sum += hash_elements(piece);
    begin = end;
  }
  return sum;
}

TEST(WeightsHash, IsTheSameHoweverATensorIsCutAndLiesInMemory) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kByte}) {
    const Tensor plain = at::arange(4 * 3 * 2 * 5).view({4, 3, 2, 5}).to(dtype);
    const uint64_t whole = weights_hash_number(std::vector<NamedTensor>{{"w", plain}});
    const Tensor other_ways[] = {
        plain, plain.contiguous(at::MemoryFormat::ChannelsLast),
        plain.permute({3, 1, 0, 2}).contiguous().permute({2, 1, 3, 0}),
        plain.permute({1, 0, 2, 3}).contiguous().permute({1, 0, 2, 3})};
    for (const auto& tensor : other_ways) {
      ASSERT_TRUE(tensor.equal(plain));
      EXPECT_EQ(hash_of_pieces("w", tensor, {120}), whole) << tensor.strides();
      EXPECT_EQ(hash_of_pieces("w", tensor, {1, 2, 47, 47, 119, 120}), whole)
          << dtype << tensor.strides();
    }
  }
}

// Boxes of any cut, each cut into two ranges: here every index of one dimension is a
// box.
TEST(WeightsHash, IsTheSameForBoxesOfAnyCut) {
  const Tensor plain = at::arange(4 * 3 * 2 * 5).view({4, 3, 2, 5}).to(at::kFloat);
  const uint64_t expected = weights_hash_number(std::vector<NamedTensor>{{"w", plain}});
  for (const Tensor& tensor : {plain, plain.contiguous(at::MemoryFormat::ChannelsLast)})
    for (const std::vector<int64_t>& cut :
         {std::vector<int64_t>{4, 30}, {4, 2, 5, 3}, {8, 15}, {120}, {2, 2, 2, 15}})
      for (size_t dim = 0; dim < cut.size(); ++dim) {
        const StateTensor whole{.spec = spec_of("w", tensor),
                                .order = memory_order(tensor)};
        const Tensor flat = tensor.as_strided({tensor.numel()}, {1});
        uint64_t sum = hash_term(whole.spec);
        for (int64_t index = 0; index < cut[dim]; ++index) {
          StatePiece piece{whole, {}};
          TensorSpec& spec = piece.tensor.spec;
          spec.box = {cut, std::vector<int64_t>(cut.size(), 0), cut};
          spec.box.from[dim] = index;
          spec.box.to[dim] = index + 1;
          const Tensor box = flat.view(cut)
                                 .narrow(static_cast<int64_t>(dim), index, 1)
                                 .contiguous()
                                 .view({-1});
          for (const auto& [begin, end] : {std::pair(int64_t{0}, box.numel() / 2),
                                           std::pair(box.numel() / 2, box.numel())}) {
            spec.begin = begin;
            spec.end = end;
            piece.data = box.narrow(0, begin, end - begin);
            sum += hash_elements(piece);
          }
        }
        EXPECT_EQ(sum, expected) << at::IntArrayRef(cut) << " along " << dim;
      }
}

TEST(WeightsHash, ATensorMayHaveGaps) {
  const Tensor wide = at::arange(12, at::kFloat).view({3, 4});
  const std::vector<NamedTensor> part{{"w", wide.narrow(1, 1, 2)}};
  const std::vector<NamedTensor> dense{{"w", wide.narrow(1, 1, 2).contiguous()}};
  EXPECT_EQ(weights_hash(part), weights_hash(dense));
}

// Sums see no order by themselves: each place has terms of its own.
TEST(WeightsHash, SeesThatTwoElementsOrTwoTensorsChangedPlaces) {
  const Tensor a = at::tensor({1.0f, 2.0f}), b = at::tensor({2.0f, 1.0f});
  const auto hash = [](const Tensor& first, const Tensor& second) {
    return weights_hash(std::vector<NamedTensor>{{"first", first}, {"second", second}});
  };
  EXPECT_NE(hash(a, a), hash(b, a));
  EXPECT_NE(hash(a, b), hash(b, a));
  EXPECT_NE(hash(a, a), hash(b, b));
}

TEST(WeightsHash, ADtypeThatNoFileHasIsNamed) {
  const std::vector<NamedTensor> tensors{{"w", at::zeros({1}, at::kComplexFloat)}};
  EXPECT_THAT(test::message_of<CheckpointError>([&] { (void)weights_hash(tensors); }),
              HasSubstr("tensor 'w': ComplexFloat; legal: F64 F32"));
}

}  // namespace
}  // namespace cohort
