// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/testing_kernels.h"
#include "cohort/optim/gradient_norm.h"
#include "cohort/step/element_sum.h"

namespace cohort {
namespace {

using test::odd_values_of;
using test::same_bits;
using test::values_of;

class StateKernelsTest : public test::KernelsTest {};

// Element by element, as the header says it.
Tensor sum_by_hand(const std::vector<Tensor>& inputs) {
  Tensor sum = inputs[0].to(at::kFloat, false, /*copy=*/true);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Tensor next = inputs[i].to(at::kFloat);
    for (int64_t k = 0; k < sum.numel(); ++k)
      sum.data_ptr<float>()[k] += next.const_data_ptr<float>()[k];
  }
  return sum;
}

TEST_P(StateKernelsTest, SumsInOrder) {
  for (const auto dtype : test::kGradientTypes)
    for (const int64_t count : test::kLengths)
      for (const size_t num : {1, 2, 5}) {
        std::vector<Tensor> host, given;
        const int64_t offset = count % 4;
        for (size_t i = 0; i < num; ++i) {
          host.push_back(odd_values_of(count, i + 1).to(dtype));
          given.push_back(there(host.back(), i == 1 ? offset : 0));
        }
        const Tensor out = there(values_of(count, 99), offset);
        kernels_->sum_in_order(given, out);
        EXPECT_TRUE(same_bits(out, sum_by_hand(host))) << dtype << " " << num;
      }
}

// More than one launch takes.
TEST_P(StateKernelsTest, SumsManyInOrder) {
  std::vector<Tensor> host, given;
  for (uint64_t i = 0; i < 2 * kernels::kMostInputs + 3; ++i) {
    host.push_back(values_of(77, i));
    given.push_back(there(host.back()));
  }
  const Tensor out = there(values_of(77, 999));
  kernels_->sum_in_order(given, out);
  EXPECT_TRUE(same_bits(out, sum_by_hand(host)));
  kernels_->sum_in_order({}, out);
  EXPECT_TRUE(same_bits(out, at::zeros({77})));
}

TEST_P(StateKernelsTest, WidensAndAdds) {
  for (const auto dtype : test::kGradientTypes)
    for (const int64_t count : test::kLengths)
      for (const int64_t offset : {0, 1, 2, 3}) {
        const Tensor narrow = odd_values_of(count, 3).to(dtype);
        const Tensor out = there(values_of(count, 4), offset);
        kernels_->widen(there(narrow, offset), out);
        EXPECT_TRUE(same_bits(out, narrow.to(at::kFloat))) << dtype << " " << count;
        const Tensor more = values_of(count, 5).to(dtype);
        kernels_->widen_add(there(more, 3 - offset), out);
        EXPECT_TRUE(
            same_bits(out, sum_by_hand({narrow.to(at::kFloat), more.to(at::kFloat)})))
            << dtype << " " << count;
      }
}

TEST_P(StateKernelsTest, NarrowsToTheNearest) {
  for (const auto dtype : test::kGradientTypes)
    for (const int64_t count : test::kLengths) {
      const Tensor wide = odd_values_of(count, 6);
      const Tensor out = there(at::zeros({count}, dtype), count % 3);
      kernels_->narrow(there(wide, count % 3), out);
      EXPECT_TRUE(same_bits(out, wide.to(dtype))) << dtype << " " << count;
    }
}

// Node `index` of `level` over slices of which only values[first] and so on are there.
Tensor node_by_hand(const std::vector<Tensor>& values, int level, int index) {
  if (level == 0) return values[index].clone();
  const Tensor left = node_by_hand(values, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= static_cast<int>(values.size())) return left;
  return sum_by_hand({left, node_by_hand(values, level - 1, 2 * index + 1)});
}

TEST_P(StateKernelsTest, FoldsAsTheTreeSays) {
  for (const int slices : {1, 2, 3, 4, 7, 16, 37, 200})
    for (const int64_t count : {int64_t{5}, int64_t{2051}}) {
      std::vector<TreeNode> nodes;
      std::vector<Tensor> host, given;
      for (int i = 0; i < slices; ++i) {
        nodes.push_back({0, i});
        host.push_back(values_of(count, static_cast<uint64_t>(i)));
        given.push_back(there(host.back(), i == 2 ? 1 : 0));
      }
      TreeFold fold(slices, nodes);
      const Tensor out = there(at::zeros({count}));
      kernels_->fold(fold, given, std::span(&out, 1));
      EXPECT_TRUE(same_bits(out, node_by_hand(host, 8, 0))) << slices;
      // In the place of the first value, as shards of memory are summed.
      kernels_->fold(fold, given, std::span(given.data(), 1));
      EXPECT_TRUE(same_bits(given[0], node_by_hand(host, 8, 0))) << slices;
    }
}

// A rank in the middle is left with several sums.
TEST_P(StateKernelsTest, FoldsAsFarAsSumsMeet) {
  const std::vector<TreeNode> nodes = partials_of({5, 27}, 64);
  TreeFold fold(64, nodes);
  ASSERT_GT(fold.left().size(), 2u);
  std::vector<Tensor> host, given, out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    host.push_back(values_of(131, i));
    given.push_back(there(host.back()));
    out.push_back(there(at::zeros({131})));
  }
  ASSERT_EQ(fold.left().size(), nodes.size());
  kernels_->fold(fold, given, out);
  for (size_t i = 0; i < nodes.size(); ++i) EXPECT_TRUE(same_bits(out[i], host[i]));
}

TEST_P(StateKernelsTest, MarksWhatIsNotFiniteAndNeverTakesItBack) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const auto dtype : test::kGradientTypes)
    for (const int64_t count : {1, 4, 1027, 70'001})
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        const Tensor flag = zeros({1}, at::kInt);
        Tensor values = values_of(count, 8).to(dtype);
        kernels_->mark_not_finite(there(values, at % 4), flag);
        EXPECT_EQ(flag.item<int>(), 0) << dtype << " " << count;
        values[at] = bad[(at + count) % 3];
        kernels_->mark_not_finite(there(values, at % 4), flag);
        EXPECT_EQ(flag.item<int>(), 1) << dtype << " " << count << " at " << at;
        values[at] = 0;
        kernels_->mark_not_finite(there(values), flag);
        EXPECT_EQ(flag.item<int>(), 1);
      }
}

// Padding may hold anything; the last chunk begins where no pack does.
TEST_P(StateKernelsTest, MarksWhatIsNotFiniteInChunks) {
  const Tensor chunks =
      kernels_->chunk_table(std::vector<kernels::Chunk>{{0, 1024, 0}, {1030, 7, 1}});
  for (const auto dtype : test::kGradientTypes)
    for (const int64_t at : {0, 1023, 1024, 1029, 1030, 1036, 1037, 1099}) {
      Tensor values = values_of(1100, 8).to(dtype);
      values[at] = std::numeric_limits<float>::infinity();
      const bool counts = at < 1024 || (at >= 1030 && at < 1037);
      const Tensor flag = zeros({1}, at::kInt);
      kernels_->mark_chunks_not_finite(there(values), chunks, flag);
      EXPECT_EQ(flag.item<int>(), counts ? 1 : 0) << dtype << " at " << at;
    }
}

TEST_P(StateKernelsTest, TheClockGoesOn) {
  const Tensor times = zeros({2}, at::kLong);
  kernels_->write_time(times.narrow(0, 0, 1));
  kernels_->write_time(times.narrow(0, 1, 1));
  EXPECT_GT(times[0].item<int64_t>(), 0);
  EXPECT_GE(times[1].item<int64_t>(), times[0].item<int64_t>());
}

TEST_P(StateKernelsTest, AVoteIsCastUnlessTheRankIsStopped) {
  const Tensor numbers = make_step_numbers(kernels_->device());
  send_step_numbers(numbers, {.step = 7});
  const Tensor hindered = zeros({1}, at::kBool), word = zeros({1}, at::kLong);
  const Tensor stop = at::ones(
      {1}, at::TensorOptions(at::kInt).pinned_memory(kernels_->device().is_cuda()));
  kernels_->cast_vote(numbers, hindered, stop, word);
  hindered.fill_(true);
  kernels_->cast_vote(numbers, hindered, Tensor(), word);
  EXPECT_EQ(word.item<int64_t>(), 0);
  EXPECT_EQ(read_step_numbers(numbers).voted, 0);
  hindered.fill_(false);
  stop.zero_();
  kernels_->cast_vote(numbers, hindered, stop, word);
  EXPECT_EQ(word.item<int64_t>(), 15);
  EXPECT_EQ(read_step_numbers(numbers).voted, 7);
  not_finite_of(numbers).fill_(1);
  kernels_->cast_vote(numbers, hindered, Tensor(), word);
  EXPECT_EQ(word.item<int64_t>(), 14);
}

TEST_P(StateKernelsTest, TheGateOpensIfAllVotesAreOfThisStepAndForIt) {
  const Tensor numbers = make_step_numbers(kernels_->device());
  const auto count = [&](std::vector<int64_t> words) {
    send_step_numbers(numbers, {.step = 7});
    kernels_->count_votes(there(at::tensor(words)), numbers);
    const StepNumbers made = read_step_numbers(numbers);
    return std::pair(made.decided == 7, made.gate == 1);
  };
  EXPECT_EQ(count({15, 15, 15}), std::pair(true, true));
  EXPECT_EQ(count({15, 14, 15}), std::pair(true, false));
  EXPECT_EQ(count({15, 13, 15}), std::pair(false, false));  // 13: the step before
  EXPECT_EQ(count({17, 15, 15}), std::pair(false, false));
  EXPECT_EQ(count({0, 15, 15}), std::pair(false, false));
}

double squares_by_hand(const float* values, int64_t count) {
  double lanes[8] = {};
  for (int64_t i = 0; i < count; ++i)
    lanes[i % 8] += static_cast<double>(values[i]) * values[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Two tensors with padding between them, which does not count.
TEST_P(StateKernelsTest, SumsSquaresOfChunks) {
  const std::vector<kernels::Chunk> chunks = {
      {0, 1024, 3}, {1024, 1, 1}, {2048, 1024, 0}, {3072, 1001, 2}};
  for (const auto dtype : test::kGradientTypes) {
    Tensor values = values_of(4096, 9).to(dtype);
    values[1500] = std::numeric_limits<float>::quiet_NaN();  // padding
    const Tensor wide = values.to(at::kFloat), sums = zeros({4}, at::kDouble);
    kernels_->square_sums(there(values, 1), kernels_->chunk_table(chunks), sums);
    for (const auto& chunk : chunks)
      EXPECT_EQ(
          sums[chunk.slot].item<double>(),
          squares_by_hand(wide.const_data_ptr<float>() + chunk.begin, chunk.count))
          << dtype << " " << chunk.slot;
  }
}

TEST_P(StateKernelsTest, SumsSquaresOfManyChunks) {
  std::vector<kernels::Chunk> chunks;
  const int64_t count = 301 * kNormChunk - 5;
  for (int64_t at = 0; at < count; at += kNormChunk)
    chunks.push_back({at, std::min(kNormChunk, count - at), at / kNormChunk});
  const Tensor values = values_of(count, 10), sums = zeros({301}, at::kDouble);
  Tensor expected = at::zeros({301}, at::kDouble);
  square_sums(values.const_data_ptr<float>(), count,
              std::span(expected.data_ptr<double>(), 301));
  kernels_->square_sums(there(values), kernels_->chunk_table(chunks), sums);
  EXPECT_TRUE(same_bits(sums, expected));
}

TEST_P(StateKernelsTest, MakesTheNormAndTheFactorOfClipping) {
  for (const double limit : {0.0, 0.5, 1e9})
    for (const int64_t count : {1, 1024, 3001}) {
      const Tensor sums = values_of(count, 11).abs().to(at::kDouble);
      const Tensor numbers = make_step_numbers(kernels_->device());
      send_step_numbers(numbers, {.mean_scale = 1.0 / 96, .grad_scale = 7});
      kernels_->norm(there(sums), limit, numbers);
      const StepNumbers made = read_step_numbers(numbers);
      const double norm =
          norm_of(std::span(sums.const_data_ptr<double>(), static_cast<size_t>(count)),
                  1.0 / 96);
      EXPECT_EQ(made.norm, norm);
      EXPECT_EQ(made.grad_scale,
                limit > 0 ? 1.0 / 96 * clip_factor(norm, limit) : 1.0 / 96);
      EXPECT_EQ(made.not_finite, 0);
      EXPECT_EQ(made.gate, 1);
    }
}

TEST_P(StateKernelsTest, ANormThatIsNoneIsMarked) {
  Tensor sums = at::ones({2000}, at::kDouble);
  sums[1999] = std::numeric_limits<double>::quiet_NaN();
  const Tensor numbers = make_step_numbers(kernels_->device());
  kernels_->norm(there(sums), 1, numbers);
  const StepNumbers made = read_step_numbers(numbers);
  EXPECT_TRUE(std::isnan(made.norm) && std::isnan(made.grad_scale));
  EXPECT_EQ(made.not_finite, 1);
  EXPECT_EQ(not_finite_of(numbers).item<int>(), 1);
  EXPECT_EQ(gate_of(numbers).item<int>(), 1);
}

double tree_by_hand(const double* sums, int64_t begin, int64_t count, int64_t span) {
  if (span == 1) return sums[2 * begin];
  const double left = tree_by_hand(sums, begin, count, span / 2);
  if (begin + span / 2 >= count) return left;
  return left + tree_by_hand(sums, begin + span / 2, count, span / 2);
}

TEST_P(StateKernelsTest, AddsChunksInATree) {
  std::vector<kernels::TensorChunks> tensors;
  int64_t chunks = 0;
  for (const int64_t count : {1, 2, 3, 255, 256, 257, 5000, 4096}) {
    tensors.push_back({chunks, count});
    chunks += count;
  }
  const Tensor sums = values_of(2 * chunks, 12).to(at::kDouble).view({chunks, 2});
  const Tensor totals = zeros({static_cast<int64_t>(tensors.size()), 2}, at::kDouble);
  kernels_->add_chunks(there(sums.flatten()).view({chunks, 2}),
                       kernels_->tensor_table(tensors), totals);
  const Tensor made = totals.cpu();
  for (size_t t = 0; t < tensors.size(); ++t)
    for (int64_t k = 0; k < 2; ++k)
      EXPECT_EQ(made[static_cast<int64_t>(t)][k].item<double>(),
                tree_by_hand(sums.const_data_ptr<double>() + 2 * tensors[t].first + k,
                             0, tensors[t].count, 8192))
          << tensors[t].count;
}

TEST_P(StateKernelsTest, SumsElementsOfAWeightsHash) {
  for (const auto dtype : {at::kByte, at::kBFloat16, at::kFloat, at::kDouble})
    for (const int64_t count : {1, 1023, 70'001}) {
      const Tensor data = values_of(count, 13).abs().to(dtype);
      uint64_t expected = 5;
      for (int64_t i = 0; i < count; ++i) {
        uint64_t bits = 0;
        const auto width = static_cast<int64_t>(data.element_size());
        std::memcpy(&bits, static_cast<const char*>(data.const_data_ptr()) + i * width,
                    static_cast<size_t>(width));
        expected +=
            element_term(77 + kGolden64 * static_cast<uint64_t>(9 + 3 * i), bits);
      }
      const Tensor sum = zeros({1}, at::kLong);
      sum.fill_(5);
      kernels_->sum_elements(there(data), 9, 3, 77, sum);
      EXPECT_EQ(static_cast<uint64_t>(sum.item<int64_t>()), expected) << dtype;
    }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, StateKernelsTest,
                         testing::ValuesIn(test::kernels_under_test()),
                         test::kernels_name);

}  // namespace
}  // namespace cohort
