// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/block_timing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "cohort/nn/first_value.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"

namespace cohort {
namespace {

struct TimedModel {
  std::string name;
  std::function<Chain()> make;
  std::function<Batch(int64_t)> batch;
};

void PrintTo(const TimedModel& model, std::ostream* out) { *out << model.name; }

Batch some_images(int64_t samples) {
  return Batch::of({{"input", at::ones({samples, 3, 8, 8})},
                    {"target", at::zeros({samples}, at::kLong)}});
}

Batch some_text(int64_t samples) {
  const Tensor tokens = at::zeros({samples, 16}, at::kLong);
  return Batch::of({{"tokens", tokens}, {"target", tokens}});
}

Chain timed_resnet() {
  ResNetOptions options = resnet_options("resnet18");
  options.small_images = true;
  options.width = 4;
  options.classes = 10;
  return make_resnet(options, {});
}

// Its head has the weights of its embedding.
Chain timed_gpt(const TensorPart& part) {
  return make_gpt({.vocab = 128, .context = 16, .width = 32, .depth = 2, .heads = 4},
                  {.tensor = part});
}

std::vector<TimedModel> timed_models() {
  return {
      {"resnet", timed_resnet, some_images},
      {"gpt", [] { return timed_gpt({}); }, some_text},
      {"gpt_part", [] { return timed_gpt({.rank = 1, .size = 2}); }, some_text},
  };
}

class BlockTiming : public testing::TestWithParam<TimedModel> {};

TEST_P(BlockTiming, EachBlockRunsAloneAndTakesMemoryForItselfAlone) {
  const auto& [name, make, batch] = GetParam();
  const auto meta_batch = [&](int64_t samples) {
    Batch on_meta = batch(samples);
    for (auto& [field, tensor] : on_meta.fields) tensor = tensor.to(at::kMeta);
    return on_meta;
  };
  const auto count = [&] {
    const ModelsWithoutMemory guard;
    return count_blocks(make(), meta_batch, 2).value();
  };
  const auto counts = count();
  const auto several = [&](int64_t samples) {  // some blocks refuse a batch of one
    EXPECT_GT(samples, 1);
    return batch(samples);
  };
  for (size_t b = 0; b < counts.size(); ++b) {
    const ModelsFilledLater guard;
    const Chain chain = make();
    SCOPED_TRACE(chain.blocks[b]->name());
    const BlockCost cost = time_block(chain, static_cast<int>(b), counts, several);
    EXPECT_GT(cost.forward.seconds(2), 0);
    EXPECT_GT(cost.backward.seconds(2), 0);
    EXPECT_EQ(cost.recompute, cost.forward);
    std::set<const void*> own;
    for (const auto& parameter : chain.blocks[b]->parameters())
      own.insert(parameter.tensor.unsafeGetTensorImpl());
    for (const auto& parameter : chain.parameters())
      EXPECT_EQ(first_value_of(parameter.tensor) == nullptr,
                own.contains(parameter.tensor.unsafeGetTensorImpl()))
          << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryModel, BlockTiming, testing::ValuesIn(timed_models()),
                         [](const auto& info) { return info.param.name; });

TEST(BlockTiming, WhatIsNotRunFollowsFromFlopsAndActivations) {
  const BlockMeasure needs{.activation_bytes = {0, 20e9}, .flops = {50, 200}};
  const BlockCost cost = cost_of_flops(needs, /*flops_per_second=*/100);
  EXPECT_EQ(cost.forward, (ComputeCost{0.5, 4}));
  EXPECT_EQ(cost.backward, (ComputeCost{1, 8}));
  EXPECT_EQ(cost.recompute, cost.forward);
  EXPECT_GT(product_rate(), 0);
}

}  // namespace
}  // namespace cohort
