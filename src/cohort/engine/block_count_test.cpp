// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_count.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "cohort/core/memory.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"

namespace cohort {
namespace {

using MakeBatch = std::function<Batch(int64_t)>;

MakeBatch images_of(std::vector<int64_t> shape, at::Device device) {
  return [=](int64_t samples) {
    std::vector<int64_t> all{samples};
    all.insert(all.end(), shape.begin(), shape.end());
    const at::TensorOptions options(device);
    return Batch::of({{"input", at::ones(all, options)},
                      {"target", at::zeros({samples}, options.dtype(at::kLong))}});
  };
}

MakeBatch text_of(int64_t length, at::Device device) {
  return [=](int64_t samples) {
    const Tensor tokens =
        at::zeros({samples, length}, at::TensorOptions(device).dtype(at::kLong));
    return Batch::of({{"tokens", tokens}, {"target", tokens}});
  };
}

struct CountedModel {
  std::string name;
  std::function<Chain()> make;
  std::vector<int64_t> shape;  // shape of images; one dimension: it is text

  MakeBatch batch(at::Device device) const {
    return shape.size() == 1 ? text_of(shape[0], device) : images_of(shape, device);
  }
};

void PrintTo(const CountedModel& model, std::ostream* out) { *out << model.name; }

Chain small_images_resnet(const std::string& name) {
  ResNetOptions options = resnet_options(name);
  options.small_images = true;
  options.width = 16;  // instead of 64: the same form in less time
  options.classes = 10;
  return make_resnet(options, {});
}

std::vector<CountedModel> counted_models() {
  return {{"mlp", [] { return make_mlp({}, {}); }, {1, 28, 28}},
          {"cnn", [] { return make_cnn({}, {}); }, {1, 28, 28}},
          {"resnet18", [] { return small_images_resnet("resnet18"); }, {3, 32, 32}},
          {"resnet50", [] { return small_images_resnet("resnet50"); }, {3, 32, 32}},
          {"resnet50v2", [] { return small_images_resnet("resnet50v2"); }, {3, 32, 32}},
          {"synced",
           [] {
             return make_resnet({.depths = {1, 1}, .width = 16, .small_images = true},
                                {.sync_batch_norm = true});
           },
           {3, 32, 32}},
          {"large_stem",
           [] { return make_resnet(resnet_options("resnet18"), {}); },
           {3, 64, 64}},
          {"gpt",
           [] {
             return make_gpt(
                 {.vocab = 512, .context = 64, .width = 64, .depth = 1, .heads = 4},
                 {});
           },
           {64}},
          {"gpt_dropout",
           [] {
             return make_gpt({.vocab = 512,
                              .context = 64,
                              .width = 64,
                              .depth = 1,
                              .heads = 4,
                              .dropout = 0.1},
                             {});
           },
           {64}},
          {"llama",
           [] {
             return make_llama({.vocab = 512,
                                .context = 64,
                                .width = 64,
                                .depth = 1,
                                .heads = 4,
                                .kv_heads = 2,
                                .hidden = 128},
                               {});
           },
           {64}},
          {"bert",
           [] {
             return make_bert({.vocab = 512,
                               .context = 64,
                               .width = 64,
                               .depth = 1,
                               .heads = 4,
                               .hidden = 128},
                              {});
           },
           {64}}};
}

Chain on_meta(const std::function<Chain()>& make) {
  const ModelsWithoutMemory guard;
  return make();
}

std::vector<BlockCount> count(const CountedModel& model, int64_t samples) {
  return count_blocks(on_meta(model.make), model.batch(at::kMeta), samples).value();
}

class BlockCountOfModels : public testing::TestWithParam<CountedModel> {};

void expect_close(const Line& counted, const Line& measured, double samples) {
  EXPECT_NEAR(counted.at(samples) / std::max(1.0, measured.at(samples)), 1, 0.03)
      << counted.at(samples) << " counted, " << measured.at(samples) << " measured";
}

TEST_P(BlockCountOfModels, KeptBytesAreThoseThatAreMeasured) {
  constexpr int64_t kSamples = 2;
  const auto counts = count(GetParam(), kSamples);
  const Chain chain = GetParam().make();
  const auto measures = measure_blocks(chain, GetParam().batch(at::kCPU), kSamples);
  ASSERT_EQ(counts.size(), measures.size());
  for (size_t b = 0; b < counts.size(); ++b) {
    SCOPED_TRACE(chain.blocks[b]->name());
    for (const double samples : {1.0, 2.0, 64.0}) {
      expect_close(counts[b].needs.activation_bytes, measures[b].activation_bytes,
                   samples);
      expect_close(counts[b].needs.output_bytes, measures[b].output_bytes, samples);
      expect_close(counts[b].needs.deferred_bytes, measures[b].deferred_bytes, samples);
    }
  }
}

// The estimate need not be right for each block, but it decides with the activations
// whether a step fits. What does not grow with the batch is left out: without AVX-512
// oneDNN needs up to nine times the weights of a convolution.
TEST_P(BlockCountOfModels, ScratchGrowsAboutAsThatOfTheHost) {
  constexpr int64_t kSamples = 2;
  const auto counts = count(GetParam(), kSamples);
  const auto measures =
      measure_blocks(GetParam().make(), GetParam().batch(at::kCPU), kSamples);
  const auto growth = [](const Line& bytes) { return bytes.at(64) - bytes.at(0); };
  double counted = 0, measured = 0;
  for (size_t b = 0; b < counts.size(); ++b) {
    counted = std::max(counted, growth(counts[b].needs.scratch_bytes));
    measured = std::max(measured, growth(measures[b].scratch_bytes));
  }
  EXPECT_NEAR(counted / measured, 1, 0.4);
}

TEST_P(BlockCountOfModels, OutputsHaveTheFormThatBlocksGive) {
  const auto counts = count(GetParam(), 2);
  const Chain chain = GetParam().make();
  const int64_t samples = 3;
  const Batch batch = GetParam().batch(at::kCPU)(samples);
  Values values;
  std::vector<int64_t> ids(samples);
  for (size_t b = 0; b + 1 < chain.blocks.size(); ++b) {
    Context context{.sample_ids = ids};
    for (const auto& field : batch.tensors(chain.blocks[b]->fields()))
      values.push_back(field);
    values = chain.blocks[b]->forward(values, context);
    ASSERT_EQ(counts[b].outputs.size(), values.size());
    const CountedValue& counted = counts[b].outputs[0];
    EXPECT_EQ(counted.shape(samples), values[0].sizes().vec()) << b;
    EXPECT_EQ(counted.dtype, values[0].scalar_type()) << b;
    EXPECT_EQ(counted.format, values[0].suggest_memory_format()) << b;
  }
  EXPECT_TRUE(counts.back().outputs[0].shape(samples).empty());
}

TEST_P(BlockCountOfModels, CountingTakesNoMemory) {
  const Chain chain = on_meta(GetParam().make);
  const int64_t before = process_peak_memory();
  ASSERT_TRUE(count_blocks(chain, GetParam().batch(at::kMeta), 1'000'000));
  // An output alone would be a thousand bytes of each sample and more. Their numbers
  // are there, and an address sanitizer keeps what was given back.
  constexpr int64_t kThreeHundredOfEach = 300'000'000;
  EXPECT_LT(process_peak_memory() - before, kThreeHundredOfEach);
}

INSTANTIATE_TEST_SUITE_P(EveryModel, BlockCountOfModels,
                         testing::ValuesIn(counted_models()),
                         [](const auto& info) { return info.param.name; });

// A rank with a part of a model counts it alone, whatever it says to the others.
TEST(BlockCount, PartsOfAModelAreCountedWithoutTheOthers) {
  for (const bool sequence : {true, false}) {
    const auto make = [&](const TensorPart& part) {
      return make_gpt(
          {.vocab = 510, .context = 64, .width = 64, .depth = 1, .heads = 4},
          {.tensor = part});
    };
    const CountedModel whole{"", [&] { return make({}); }, {64}};
    const CountedModel part{
        "", [&] { return make({.rank = 3, .size = 4, .sequence = sequence}); }, {64}};
    const auto all = count(whole, 2), mine = count(part, 2);
    const auto measured = measure_blocks(part.make(), part.batch(at::kCPU), 2);
    EXPECT_NEAR(mine[1].needs.flops.at(2) / all[1].needs.flops.at(2), 0.25, 0.01);
    for (size_t b = 0; b < mine.size(); ++b)
      expect_close(mine[b].needs.activation_bytes, measured[b].activation_bytes, 2);
    EXPECT_EQ(mine[1].outputs[0].shape(2)[1], sequence ? 16 : 64);
  }
}

TEST(BlockCount, FlopsOfALinearLayerAreTwoAMultiplication) {
  const auto counts = count(
      {"", [] { return make_linear_stack({.width = 48, .depth = 2}, {}); }, {1, 48}},
      4);
  for (const auto& block : counts) {
    EXPECT_EQ(block.needs.flops.per_sample, 2.0 * 48 * 48);
    EXPECT_EQ(block.needs.flops.fixed, 0);
  }
}

// 28 x 28 places of 9 weights a filter; then half of each side, and 32 channels.
TEST(BlockCount, FlopsOfAConvolutionAreTwoAWeightAndPlace) {
  const auto counts = count(counted_models()[1], 2);
  EXPECT_EQ(counts[0].needs.flops.per_sample, 2.0 * 28 * 28 * 32 * 9);
  EXPECT_EQ(counts[1].needs.flops.per_sample, 2.0 * 14 * 14 * 64 * 32 * 9);
  EXPECT_EQ(counts[2].needs.flops.per_sample, 2.0 * 64 * 7 * 7 * 128);
  EXPECT_EQ(counts[3].needs.flops.per_sample, 2.0 * 128 * 10);
}

// 4.1 thousand million multiplications and additions, as torchvision says.
TEST(BlockCount, FlopsOfResNet50AreTheKnownOnes) {
  const auto counts = count(
      {"", [] { return make_resnet(resnet_options("resnet50"), {}); }, {3, 224, 224}},
      1);
  EXPECT_NEAR(forward_flops(counts).per_sample / 8.2e9, 1, 0.02);
  EXPECT_NEAR(forward_flops(counts).fixed, 0, 1);
}

// An mlp behind a function of its input.
Chain with_function(const std::function<Tensor(const Tensor&)>& function) {
  Chain chain = on_meta([] { return make_mlp({.width = 8}, {}); });
  chain.blocks.insert(chain.blocks.begin(),
                      std::make_unique<FunctionBlock>(
                          "function", TensorLists{},
                          [=](const Tensor& x, Context&) { return function(x); },
                          std::vector<std::string>{"input"}));
  return chain;
}

// Samples are 28 rows of 28, each multiplied with all.
TEST(BlockCount, FlopsOfProductsOfEachSampleAreSeenOnce) {
  const Chain chain = with_function([](const Tensor& x) {
    const Tensor rows = x.squeeze(1);
    return rows.matmul(rows.transpose(1, 2)) + at::baddbmm(rows, rows, rows);
  });
  const auto counts = count_blocks(chain, images_of({1, 28, 28}, at::kMeta), 2).value();
  EXPECT_EQ(counts[0].needs.flops.per_sample, 2.0 * 2 * 28 * 28 * 28);
}

TEST(BlockCount, OfABlockThatLooksAtValuesIsNothing) {
  const Chain chain =
      with_function([](const Tensor& x) { return x * x.sum().item<double>(); });
  EXPECT_FALSE(count_blocks(chain, images_of({1, 28, 28}, at::kMeta), 2));
}

}  // namespace
}  // namespace cohort
