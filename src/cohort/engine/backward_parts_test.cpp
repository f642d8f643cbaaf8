// SPDX-License-Identifier: Apache-2.0
// A backward in two parts: which products are in which, and that both together make the
// gradients of a whole one.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "cohort/engine/block_runner.h"
#include "cohort/nn/language_models.h"

namespace cohort {
namespace {

thread_local int products_seen = 0;

// Counts products of two matrices in this thread while it lives.
class ProductCounter {
 public:
  ProductCounter()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}))) {
    products_seen = 0;
  }
  ~ProductCounter() { at::removeCallback(handle_); }
  int products() const { return products_seen; }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    if (name == "aten::mm" || name == "aten::addmm" || name == "aten::addmm_")
      ++products_seen;
    return nullptr;
  }
  at::CallbackHandle handle_;
};

// Gradients by parameter, as their blocks add them up.
class OneSlice final : public Surroundings {
 public:
  OneSlice(const Chain& chain, Batch batch) : batch_(std::move(batch)) {
    for (const auto& [name, tensor] : chain.parameters())
      homes.push_back(at::full_like(tensor.detach(), NAN));
  }
  const Batch& batch(int) override { return batch_; }
  void keep_loss(int, const WeightedLoss&) override {}
  Tensor seed() override { return at::ones({}); }
  GradTarget home(const Addend& to) override { return {homes.at(to.place)}; }

  std::vector<Tensor> homes;

 private:
  Batch batch_;
};

// 257 rows are no multiple of 64: the head pads them. Its weight is the embedding's.
Chain padded_gpt(bool tied) {
  return make_gpt({.vocab = 257,
                   .context = 6,
                   .width = 16,
                   .depth = 2,
                   .heads = 2,
                   .dropout = 0,
                   .tie = tied},
                  {.seed = 3});
}

Batch of_tokens() {
  const Tensor tokens = at::arange(12, at::kLong).reshape({2, 6}).mul(21);
  return Batch::of({{"tokens", tokens}, {"target", tokens.add(4)}}, {0, 1});
}

struct BackwardRun {
  std::vector<Tensor> gradients;
  int head_inputs = 0, head_weights = 0;  // products in the head's two parts
};

BackwardRun run_backward(bool tied, bool in_parts) {
  const Chain chain = padded_gpt(tied);
  OneSlice around(chain, of_tokens());
  BlockRunner blocks(chain, around, {});
  blocks.begin(0, Phase::kTrain);
  const int size = static_cast<int>(chain.blocks.size());
  for (int b = 0; b < size; ++b) blocks.forward(b, 0, /*keeps_graph=*/true);
  BackwardRun run;
  for (int b = size - 1; b >= 0; --b) {
    const ProductCounter counter;
    in_parts ? blocks.backward_input(b, 0) : blocks.backward(b, 0);
    if (b + 1 == size) run.head_inputs = counter.products();
  }
  for (int b = size - 1; b >= 0 && in_parts; --b) {
    const ProductCounter counter;
    blocks.backward_weight(b, 0);
    if (b + 1 == size) run.head_weights = counter.products();
  }
  run.gradients = around.homes;
  return run;
}

class BackwardParts : public testing::TestWithParam<bool> {};

TEST_P(BackwardParts, TheProductOfAPaddedHeadsWeightIsPutOff) {
  const BackwardRun whole = run_backward(GetParam(), false);
  const BackwardRun parts = run_backward(GetParam(), true);
  EXPECT_EQ(whole.head_inputs, 2);
  EXPECT_EQ(parts.head_inputs, 1);
  EXPECT_EQ(parts.head_weights, 1);
  ASSERT_EQ(parts.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_FALSE(whole.gradients[i].isnan().any().item<bool>()) << i;
    EXPECT_TRUE(parts.gradients[i].equal(whole.gradients[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Tied, BackwardParts, testing::Bool());

}  // namespace
}  // namespace cohort
