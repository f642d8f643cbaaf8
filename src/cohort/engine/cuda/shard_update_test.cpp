// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cohort/engine/cuda/testing_kernels.h"
#include "cohort/optim/gradient_norm.h"

namespace cohort {
namespace {

using test::same_bits;
using test::values_of;

std::vector<UpdateOptions> every_rule() {
  std::vector<UpdateOptions> rules;
  for (const char* name : {"sgd", "lars"})
    for (const auto& [momentum, nesterov] :
         {std::pair(0.0, false), {0.9, false}, {0.9, true}})
      rules.push_back({.name = name, .momentum = momentum, .nesterov = nesterov});
  for (const char* name : {"adam", "adamw", "lamb"}) rules.push_back({.name = name});
  return rules;
}

// Three tensors and padding behind the first. The last begins where no pack does.
constexpr int64_t kShard = 16'384;
std::vector<UpdateRange> three_ranges() {
  return {{0, 2500, {.weight_decay = 0.01, .adapts = true}, 1, 0},
          {3072, 3101, {.weight_decay = 0, .adapts = false}},
          {3101, 15'002, {.weight_decay = 0.1, .adapts = true}, 0, 3}};
}
constexpr int64_t kChunks = 3 + 12;
const std::vector<kernels::TensorChunks> kTensors = {{3, 12}, {0, 3}};  // by place

// A shard, and the same on the host beside it, which UpdateRule updates.
struct Shards {
  ShardMemory given, expected;
};

// The rule itself, range by range.
void update_by_rule(const UpdateRule& rule, ShardMemory& shard, const Tensor& gradient,
                    const StepScalars& scalars) {
  const Tensor wide = gradient.to(at::kFloat);
  const auto stretch = [&]<typename Real>(Real*, int64_t at, int64_t count,
                                          std::vector<Real*>& states) {
    for (const Tensor& state : shard.states)
      states.push_back(state.data_ptr<float>() + at);
    return UpdateStretch<Real>{shard.master.data_ptr<float>() + at,
                               wide.const_data_ptr<float>() + at, states, count};
  };
  for (const UpdateRange& range : three_ranges()) {
    const int64_t count = range.end - range.begin;
    std::vector<double> totals(static_cast<size_t>(rule.reductions()));
    if (rule.reductions() > 0 && range.traits.adapts) {
      std::vector<double> sums;
      for (int64_t at = 0; at < count; at += kNormChunk) {
        std::vector<const float*> states;
        sums.resize(sums.size() + 2);
        rule.reduce(stretch(static_cast<const float*>(nullptr), range.begin + at,
                            std::min(kNormChunk, count - at), states),
                    range.traits, scalars, std::span(sums).last(2));
      }
      add_chunks(sums, totals);
    }
    std::vector<float*> states;
    rule.apply(stretch(static_cast<float*>(nullptr), range.begin, count, states),
               range.traits, totals, scalars);
    if (shard.published.defined())
      shard.published.narrow(0, range.begin, count)
          .copy_(shard.master.narrow(0, range.begin, count));
  }
}

StepScalars scalars_of(int64_t step) {
  return {
      .rate = 0.01 / static_cast<double>(step), .grad_scale = 1.0 / 96, .step = step};
}

// Everything a step launches, in its order.
struct Step {
  Step(StateKernels& kernels, const ShardUpdateOptions& options)
      : kernels(kernels),
        rule(make_update_rule(options.rule)),
        update(kernels.make_shard_update(options)),
        numbers(make_step_numbers(kernels.device())),
        sums(at::zeros({kChunks, 2},
                       at::TensorOptions(at::kDouble).device(kernels.device()))),
        totals(at::zeros({2, 2}, sums.options())),
        tensors(kernels.tensor_table(kTensors)) {}

  void launch(const ShardMemory& shard, const Tensor& gradient) {
    if (rule->reductions() > 0) {
      update->reduce(shard, gradient, numbers, sums);
      kernels.add_chunks(sums, tensors, totals);
    }
    update->apply(shard, gradient, numbers, totals);
  }

  StateKernels& kernels;
  std::unique_ptr<UpdateRule> rule;
  std::unique_ptr<ShardUpdate> update;
  Tensor numbers, sums, totals, tensors;
};

void expect_same(const Shards& shards, const std::string& what) {
  EXPECT_TRUE(same_bits(shards.given.master, shards.expected.master)) << what;
  for (size_t k = 0; k < shards.given.states.size(); ++k)
    EXPECT_TRUE(same_bits(shards.given.states[k], shards.expected.states[k])) << what;
  if (!shards.given.published.defined()) return;
  EXPECT_TRUE(same_bits(shards.given.published, shards.expected.published)) << what;
}

std::string name_of(const ShardUpdateOptions& options) {
  return options.rule.name + (options.rule.nesterov ? " nesterov " : " ") +
         c10::toString(options.gradient) + " " +
         (options.published ? c10::toString(*options.published) : "nothing");
}

class ShardUpdates : public test::KernelsTest {
 protected:
  Shards make_shards(const ShardUpdateOptions& options, int64_t offset) {
    const auto rule = make_update_rule(options.rule);
    Shards shards;
    const auto add = [&](const Tensor& host, Tensor& given, Tensor& expected) {
      expected = host.clone();
      given = there(host, offset);
    };
    add(values_of(kShard, 1), shards.given.master, shards.expected.master);
    for (size_t k = 0; k < rule->states().size(); ++k) {
      shards.given.states.emplace_back();
      shards.expected.states.emplace_back();
      add(values_of(kShard, 2 + k).abs(), shards.given.states[k],
          shards.expected.states[k]);
    }
    if (options.published)
      add(values_of(kShard, 7).to(*options.published), shards.given.published,
          shards.expected.published);
    return shards;
  }

  void expect_updates(const ShardUpdateOptions& options, int64_t offset) {
    Shards shards = make_shards(options, offset);
    Step step(*kernels_, options);
    for (int64_t t = 1; t <= 3; ++t) {
      const Tensor gradient =
          values_of(kShard, 10 + static_cast<uint64_t>(t)).to(options.gradient);
      send_step_numbers(step.numbers, step_numbers_of(options.rule, scalars_of(t)));
      step.launch(shards.given, there(gradient, offset));
      update_by_rule(*step.rule, shards.expected, gradient, scalars_of(t));
    }
    expect_same(shards, name_of(options));
  }
};

TEST_P(ShardUpdates, GiveTheBitsOfTheRule) {
  for (const UpdateOptions& rule : every_rule())
    for (const int64_t offset : {0, 1})
      expect_updates({.rule = rule, .ranges = three_ranges()}, offset);
}

TEST_P(ShardUpdates, ReadNarrowGradientsAndPublish) {
  for (const char* rule : {"sgd", "adamw", "lamb"})
    for (const auto gradient : test::kGradientTypes)
      for (const auto published : test::kGradientTypes)
        expect_updates({.rule = {.name = rule},
                        .ranges = three_ranges(),
                        .gradient = gradient,
                        .published = published},
                       gradient == published ? 3 : 0);
}

TEST_P(ShardUpdates, ChangeNothingWithAClosedGate) {
  for (const UpdateOptions& rule : every_rule()) {
    const ShardUpdateOptions options{
        .rule = rule, .ranges = three_ranges(), .published = at::kBFloat16};
    const Shards shards = make_shards(options, 0);
    Step step(*kernels_, options);
    send_step_numbers(step.numbers, step_numbers_of(rule, scalars_of(1)));
    gate_of(step.numbers).zero_();
    step.launch(shards.given, there(values_of(kShard, 3)));
    expect_same(shards, name_of(options));
  }
}

// Not a number stays with its element, except where a whole tensor hears of it.
TEST_P(ShardUpdates, WhatIsNoNumberSpreadsAsOnTheHost) {
  for (const UpdateOptions& rule : every_rule()) {
    const ShardUpdateOptions options{.rule = rule, .ranges = three_ranges()};
    Shards shards = make_shards(options, 2);
    Step step(*kernels_, options);
    Tensor gradient = values_of(kShard, 4);
    gradient[3090] = std::numeric_limits<float>::quiet_NaN();
    gradient[5000] = std::numeric_limits<float>::infinity();
    send_step_numbers(step.numbers, step_numbers_of(rule, scalars_of(1)));
    step.launch(shards.given, there(gradient));
    update_by_rule(*step.rule, shards.expected, gradient, scalars_of(1));
    expect_same(shards, name_of(options));
  }
}

// A shard of a tensor that is cut, at a chunk: its sums go where the tensor's are.
TEST_P(ShardUpdates, SumsOfACutTensorAreThoseOfTheWhole) {
  const UpdateOptions rule{.name = "lamb"};
  const ParameterTraits traits{.weight_decay = 0.1};
  const ShardUpdateOptions whole{.rule = rule, .ranges = {{0, 5000, traits, 0, 0}}};
  const ShardUpdateOptions left{.rule = rule, .ranges = {{0, 2048, traits, 0, 0}}};
  const ShardUpdateOptions right{.rule = rule, .ranges = {{0, 2952, traits, 0, 2}}};
  const Shards shards = make_shards(whole, 0);
  const Tensor gradient = there(values_of(kShard, 5));
  const auto part = [&](int64_t begin) {
    const auto of = [&](const Tensor& tensor) {
      return tensor.narrow(0, begin, kShard - begin);
    };
    return ShardMemory{
        .master = of(shards.given.master),
        .states = {of(shards.given.states[0]), of(shards.given.states[1])}};
  };
  Step all(*kernels_, whole), cut(*kernels_, left);
  for (Step* step : {&all, &cut})
    send_step_numbers(step->numbers, step_numbers_of(rule, scalars_of(2)));
  all.update->reduce(shards.given, gradient, all.numbers, all.sums);
  cut.update->reduce(part(0), gradient, cut.numbers, cut.sums);
  kernels_->make_shard_update(right)->reduce(
      part(2048), gradient.narrow(0, 2048, kShard - 2048), cut.numbers, cut.sums);
  EXPECT_TRUE(same_bits(all.sums, cut.sums));
  EXPECT_NE(all.sums[4][1].item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ShardUpdates,
                         testing::ValuesIn(test::kernels_under_test()),
                         test::kernels_name);

}  // namespace
}  // namespace cohort
