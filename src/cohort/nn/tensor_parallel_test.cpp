// SPDX-License-Identifier: Apache-2.0
// Models in parts against the same model on one rank, in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/testing_language.h"
#include "cohort/step/chain_specs.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using When = BlockCall::When;
constexpr int64_t kVocab = 19, kContext = 8, kSamples = 3;

// Makes calls over a communicator and keeps what they were.
class LoggedCalls final : public BlockCalls {
 public:
  explicit LoggedCalls(Communicator& comm) : comm_(comm) {}

  void begin(When when) {
    when_ = when;
    made.clear();
  }
  int size(AxisSet) const override { return comm_.size(); }
  void all_reduce(AxisSet axes, Tensor& tensor) override {
    note(axes, CallOp::kAllReduce, tensor);
    comm_.all_reduce(tensor, ReduceOp::kSum).wait();
  }
  void all_gather(AxisSet axes, Tensor& out, const Tensor& shard) override {
    note(axes, CallOp::kAllGather, shard);
    comm_.all_gather(out, shard).wait();
  }
  void reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) override {
    note(axes, CallOp::kReduceScatter, in);
    comm_.reduce_scatter(out, in, ReduceOp::kSum).wait();
  }

  std::vector<BlockCall> made;

 private:
  void note(AxisSet axes, CallOp op, const Tensor& given) {
    made.push_back({.when = when_,
                    .axes = axes,
                    .op = op,
                    .dtype = given.scalar_type(),
                    .numel = given.numel()});
  }

  Communicator& comm_;
  When when_ = When::kForward;
};

// What a block declares, as it is made with that many samples.
std::vector<BlockCall> declared(const Block& block, When when,
                                at::ScalarType dtype = at::kDouble) {
  std::vector<BlockCall> calls;
  for (BlockCall call : block.calls()) {
    if (call.when != when) continue;
    call.numel = call.numel_for(kSamples);
    call.per_sample = 0;
    call.dtype = call.dtype_for(dtype);
    calls.push_back(call);
  }
  return calls;
}

struct Outcome {
  double loss = 0;
  double count = 0;
  std::map<std::string, Tensor> gradients;
};

// Forward and backward block by block, as a step does it.
class BlockByBlock {
 public:
  BlockByBlock(const Chain& chain, LoggedCalls* calls) : chain_(chain), calls_(calls) {
    context_ = {.step = 3, .sample_ids = ids_, .seed = 9, .calls = calls};
  }

  Outcome run(const test::Text& text) {
    Values values;
    std::vector<Values> inputs, outputs;
    for (const auto& block : chain_.blocks) {
      inputs.push_back(cut_graph(values, true));
      Values given = inputs.back();
      for (const auto& field : block->fields()) given.push_back(text.field(field));
      begin(When::kForward);
      values = block->forward(given, context_);
      expect_declared(*block, When::kForward);
      outputs.push_back(values);
    }
    const WeightedLoss loss = chain_.loss(values, {});
    Outcome outcome{loss.sum.item<double>(), loss.count_here(), {}};
    Tensor grad = at::ones_like(loss.sum);
    for (size_t b = chain_.blocks.size(); b-- > 0;)
      grad = backward(*chain_.blocks[b], outputs[b][0], grad, inputs[b], outcome);
    return outcome;
  }

 private:
  Tensor backward(const Block& block, const Tensor& root, const Tensor& grad,
                  const Values& inputs, Outcome& outcome) {
    Values wanted;
    for (const auto& [name, tensor] : block.parameters()) wanted.push_back(tensor);
    wanted.insert(wanted.end(), inputs.begin(), inputs.end());
    begin(When::kBackward);
    const auto grads = torch::autograd::grad({root}, wanted, {grad});
    expect_declared(block, When::kBackward);
    for (size_t i = 0; i < block.parameters().size(); ++i) {
      Tensor& sum = outcome.gradients[block.parameters()[i].name];
      sum = sum.defined() ? sum + grads[i] : grads[i];
    }
    return inputs.empty() ? Tensor() : grads.back();
  }

  void begin(When when) {
    if (calls_) calls_->begin(when);
  }
  void expect_declared(const Block& block, When when) {
    if (calls_)
      EXPECT_EQ(calls_->made, declared(block, when))
          << block.name() << " " << name_of(when);
    else
      EXPECT_TRUE(block.calls().empty());
  }

  const Chain& chain_;
  LoggedCalls* calls_;
  std::vector<int64_t> ids_ = {5, 77, 6};
  Context context_;
};

// What of a whole tensor a rank's begins with.
Tensor part_of(const Tensor& whole, const TensorSpec& spec) {
  const BoxMap map(spec.box, whole.numel());
  const Tensor index = at::empty({map.numel()}, at::kLong);
  for (int64_t i = 0; i < map.numel(); ++i)
    index.data_ptr<int64_t>()[i] = map.to_whole(i);
  return whole.detach().contiguous().flatten().index_select(0, index);
}

using Visit = std::function<void(const TensorSpec& spec, Tensor tensor)>;
void each_parameter(const Chain& chain, const Visit& visit) {
  for (const auto& block : chain.blocks)
    for (size_t i = 0; i < block->parameters().size(); ++i)
      visit(parameter_spec(*block, i), block->parameters()[i].tensor);
}

std::map<std::string, Tensor> by_name(const Chain& chain) {
  std::map<std::string, Tensor> named;
  for (const auto& [name, tensor] : chain.parameters()) named[name] = tensor;
  return named;
}

void expect_part(const Tensor& part, const Tensor& whole, const TensorSpec& spec,
                 double bound) {
  const Tensor flat = part.detach().contiguous().flatten();
  ASSERT_EQ(spec.shape, whole.sizes().vec()) << spec.name;
  const Tensor mine = flat.narrow(0, 0, spec.end);
  // What adds up to nothing, as the gradient of a key's bias does, is noise.
  const double most = whole.abs().max().item<double>() + (bound > 0 ? 1e-5 : 0);
  EXPECT_LE((mine - part_of(whole, spec)).abs().max().item<double>(), bound * most)
      << spec.name;
  EXPECT_TRUE(
      flat.narrow(0, spec.end, flat.numel() - spec.end).eq(0).all().item<bool>())
      << spec.name << ": padding";
}

struct Case {
  std::string name;
  std::function<Chain(const LayerOptions&)> make;
  int size = 2;
  bool sequence = true;
};

void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

class TensorParallel : public testing::TestWithParam<Case> {
 protected:
  static Chain make(const TensorPart& part) {
    return GetParam().make({.seed = 4, .tensor = part});
  }
  static TensorPart part_of_rank(int rank) {
    return {.rank = rank, .size = GetParam().size, .sequence = GetParam().sequence};
  }
  void on_every_rank(const std::function<void(int rank, Communicator& comm)>& body) {
    test::run_ranks({.backend = "local", .size = GetParam().size},
                    [&](Communicator& comm) { body(comm.rank(), comm); });
  }
};

TEST_P(TensorParallel, PartsBeginWithTheValuesOfTheWhole) {
  test::run_in_child([] {
    const auto whole = by_name(make({}));
    for (int rank = 0; rank < GetParam().size; ++rank)
      each_parameter(make(part_of_rank(rank)),
                     [&](const TensorSpec& spec, const Tensor& tensor) {
                       expect_part(tensor, whole.at(spec.name), spec, 0);
                     });
  });
}

TEST_P(TensorParallel, PartsHoldTheirShareAndNoMore) {
  const int size = GetParam().size;
  for (int rank = 0; rank < size; ++rank)
    each_parameter(make(part_of_rank(rank)),
                   [&](const TensorSpec& spec, const Tensor& tensor) {
                     const int64_t row = tensor.numel() / tensor.size(0);
                     if (spec.box.is_whole()) return;
                     EXPECT_LE(tensor.numel(), spec.numel() / size + row) << spec.name;
                   });
}

TEST_P(TensorParallel, GivesTheLossAndAllGradientsOfOneRank) {
  on_every_rank([](int rank, Communicator& comm) {
    test::Text text = test::Text::of(kSamples, kContext, kVocab);
    text.target = text.target.clone();
    text.target[0][3] = -100;
    text.segments = at::arange(kContext).div(3, "floor").expand({kSamples, -1});
    const Chain whole = make({}), part = make(part_of_rank(rank));
    test::set_weights(whole);
    for (const auto& [name, tensor] : whole.parameters())
      Tensor(tensor).set_data(tensor.detach().to(at::kDouble));
    const auto weights = by_name(whole);
    each_parameter(part, [&](const TensorSpec& spec, Tensor tensor) {
      const Tensor wide = at::zeros(tensor.sizes(), at::kDouble);
      wide.view({-1})
          .narrow(0, 0, spec.end)
          .copy_(part_of(weights.at(spec.name), spec));
      tensor.set_data(wide);
    });
    const Outcome expected = BlockByBlock(whole, nullptr).run(text);
    LoggedCalls calls(comm);
    const Outcome outcome = BlockByBlock(part, &calls).run(text);
    EXPECT_EQ(outcome.count, kSamples * kContext - 1);
    EXPECT_EQ(outcome.count, expected.count);
    EXPECT_NEAR(outcome.loss, expected.loss, 1e-10 * expected.loss);
    each_parameter(part, [&](const TensorSpec& spec, const Tensor&) {
      expect_part(outcome.gradients.at(spec.name), expected.gradients.at(spec.name),
                  spec, 1e-9);
    });
  });
}

// In evaluation, with the calls that are declared for it.
TEST(TensorParts, LogitsAreBroughtTogetherForWhoDrawsTokens) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    const GptOptions model{.vocab = kVocab,
                           .context = kContext,
                           .width = 16,
                           .depth = 1,
                           .heads = 4,
                           .dropout = 0.5};
    const test::Text text = test::Text::of(kSamples, kContext, kVocab);
    const auto logits = [&](const TensorPart& part, BlockCalls* calls) {
      const Chain chain = make_gpt(model, {.seed = 4, .tensor = part});
      return test::logits_of(chain, text, {.phase = Phase::kEvaluate, .calls = calls});
    };
    LoggedCalls calls(comm);
    calls.begin(When::kEvaluate);
    const Tensor parts = logits({.rank = comm.rank(), .size = 2}, &calls);
    std::vector<BlockCall> expected;
    Chain chain = make_gpt(model, {.tensor = {.rank = comm.rank(), .size = 2}});
    auto last = make_logits_block(chain, kContext);
    const auto head = std::exchange(chain.blocks.back(), std::move(last));
    for (const auto& block : chain.blocks)
      for (const auto& call : declared(*block, When::kEvaluate, at::kFloat))
        expected.push_back(call);
    EXPECT_EQ(calls.made, expected);
    EXPECT_TRUE(at::allclose(parts, logits({}, nullptr), 1e-4, 1e-6));
  });
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const int size : {2, 4})
    for (const bool sequence : {true, false}) {
      const std::string tail = std::to_string(size) + (sequence ? "sequence" : "plain");
      const auto add = [&](const std::string& name, auto make) {
        cases.push_back({name + tail, make, size, sequence});
      };
      for (const bool segments : {true, false})
        add(segments ? "gpt_segments" : "gpt", [segments](const LayerOptions& layers) {
          return make_gpt({.vocab = kVocab,
                           .context = kContext,
                           .width = 16,
                           .depth = 2,
                           .heads = 4,
                           .dropout = segments ? 0.2 : 0,
                           .segments = segments},
                          layers);
        });
      add("llama", [](const LayerOptions& layers) {
        return make_llama({.vocab = kVocab,
                           .context = kContext,
                           .width = 32,
                           .depth = 2,
                           .heads = 8,
                           .kv_heads = 4,
                           .hidden = 24},
                          layers);
      });
      add("bert", [](const LayerOptions& layers) {
        return make_bert({.vocab = kVocab,
                          .context = kContext,
                          .width = 16,
                          .depth = 2,
                          .heads = 4,
                          .hidden = 20,
                          .dropout = 0.2},
                         layers);
      });
    }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Every, TensorParallel, testing::ValuesIn(every_case()),
                         [](const auto& info) { return info.param.name; });

std::string refusal(const GptOptions& model, int size, bool sequence = true) {
  return test::message_of<ConfigError>([&] {
    make_gpt(model, {.tensor = {.rank = 0, .size = size, .sequence = sequence}});
  });
}

TEST(TensorParts, WhatDoesNotDivideIsRefusedWithWhatDoes) {
  const GptOptions model{
      .vocab = 19, .context = 9, .width = 24, .depth = 1, .heads = 6};
  EXPECT_EQ(refusal(model, 4), "[nn] heads of 6 on tp=4; legal: tp=1, 2, 3, 6");
  EXPECT_EQ(refusal(model, 2), "[nn] a sequence of 9 on tp=2; legal: tp=1, 3, 9");
  EXPECT_EQ(refusal(model, 2, false), "no error");
  EXPECT_EQ(refusal({.vocab = 5, .context = 8, .width = 16, .depth = 1, .heads = 4}, 4),
            "[nn] a vocabulary of 5 leaves nothing for one of tp=4 ranks; legal: fewer "
            "of them");
}

}  // namespace
}  // namespace cohort
