// SPDX-License-Identifier: Apache-2.0
// Ranks that compute each layer together: the state of a step is in parts, its sums,
// norm, loss and hash are those of one rank that has all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <map>
#include <mutex>

#include "cohort/core/hash.h"
#include "cohort/engine/executor.h"
#include "cohort/layers.h"
#include "cohort/nn/first_value.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTpInputs = 8, kTpHidden = 12, kTpSlices = 4, kTpRows = 3;

Tensor summed(const Tensor& value, BlockCalls* calls) {
  Tensor sum = value.contiguous().clone();
  if (calls) calls->all_reduce(kTensorAxis, sum);
  return sum;
}

// Gradients of what all have are the sum of what each finds.
struct EnterParts : torch::autograd::Function<EnterParts> {
  static Tensor forward(AutogradContext* context, const Tensor& input, int64_t calls) {
    context->saved_data["calls"] = calls;
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* const calls =
        reinterpret_cast<BlockCalls*>(context->saved_data["calls"].toInt());
    return {summed(gradients[0], calls), Tensor()};
  }
};

struct LeaveParts : torch::autograd::Function<LeaveParts> {
  static Tensor forward(AutogradContext*, const Tensor& input, int64_t calls) {
    return summed(input, reinterpret_cast<BlockCalls*>(calls));
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

// input + (relu(input first^T) second^T + bias), cut between the two products.
class PairBlock final : public LayerBlock {
 public:
  PairBlock(const std::string& name, const TensorPart& part,
            std::vector<std::string> fields)
      : LayerBlock(name, std::move(fields)), part_(part) {
    const int64_t hidden = kTpHidden / part.size, from = hidden * part.rank;
    first_ = cut(name + ".first", {hidden, kTpInputs}, {kTpHidden, kTpInputs},
                 {.cut = {kTpHidden, kTpInputs},
                  .from = {from, 0},
                  .to = {from + hidden, kTpInputs}});
    second_ = cut(name + ".second", {kTpInputs, hidden}, {kTpInputs, kTpHidden},
                  {.cut = {kTpInputs, kTpHidden},
                   .from = {0, from},
                   .to = {kTpInputs, from + hidden}});
    bias_ = tensors_.add_parameter(
        name + ".bias", new_parameter({kTpInputs}, value_of(name + ".bias")));
    if (part.size == 1) return;
    const BlockCall call{.axes = kTensorAxis,
                         .dtype = at::ScalarType::Undefined,
                         .per_sample = kTpInputs};
    tensors_.forward_calls.push_back(call);
    BlockCall back = call, looks = call;
    back.when = BlockCall::When::kBackward;
    looks.when = BlockCall::When::kEvaluate;
    if (fields_are_empty()) tensors_.backward_calls.push_back(back);
    tensors_.forward_calls.push_back(looks);
  }

  Values forward(const Values& inputs, Context& context) override {
    const auto calls =
        reinterpret_cast<int64_t>(part_.size > 1 ? context.calls : nullptr);
    const Tensor entered = EnterParts::apply(inputs.at(0), calls);
    const Tensor hidden = at::relu(at::linear(entered, first_));
    return {inputs[0] + LeaveParts::apply(at::linear(hidden, second_), calls) + bias_};
  }

 private:
  static FirstValue value_of(const std::string& name) {
    return {.key = RandomKey::of_path(3, name), .low = -0.5, .high = 0.5};
  }
  bool fields_are_empty() const { return fields().empty(); }

  Tensor cut(const std::string& name, at::IntArrayRef shape, at::IntArrayRef whole,
             TensorBox box) {
    ParameterCut cut{.shape = whole.vec(), .box = std::move(box)};
    if (part_.size == 1) cut = {};
    return tensors_.add_parameter(name, new_parameter(shape, value_of(name)),
                                  std::move(cut));
  }

  TensorPart part_;
  Tensor first_, second_, bias_;
};

Chain make_pairs(const TensorPart& part) {
  const ModelsFilledLater later;
  Chain chain;
  for (int64_t i = 0; i < 4; ++i)
    chain.blocks.push_back(std::make_unique<PairBlock>("pair" + std::to_string(i), part,
                                                       fields_of_layer(i)));
  chain.loss = {.function = [](const Values& outputs, const Values&) {
    return WeightedLoss{.sum = outputs[0].square().sum(),
                        .count = static_cast<double>(outputs[0].size(0))};
  }};
  return chain;
}

Batch tp_slice(int64_t step, int slice) {
  const Tensor input = at::arange(kTpRows * kTpInputs, at::kFloat)
                           .add(static_cast<double>(100 * step + 31 * slice))
                           .mul(0.37)
                           .sin()
                           .view({kTpRows, kTpInputs});
  return Batch::of({{"input", input}});
}

struct TpWay {
  Layout layout;
  const char* rule = "adamw";
  bool exact = false;
  bool staged = false;
  at::ScalarType dtype = at::kFloat;
};

void add_pieces(Executor& executor, std::map<std::string, Tensor>& whole) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const auto& piece : executor.state(Holding::kOwned)) {
    const TensorSpec& spec = piece.tensor.spec;
    Tensor& all = whole[spec.name];
    if (!all.defined()) all = at::full({spec.numel()}, NAN, piece.data.options());
    const BoxMap box(spec.box, spec.numel());
    for (int64_t i = spec.begin; i < spec.end; ++i) {
      const int64_t at = box.to_whole(i);
      EXPECT_TRUE(all[at].isnan().item<bool>()) << spec.name << " is owned twice";
      all[at] = piece.data[i - spec.begin];
    }
  }
}

struct TpResult {
  std::vector<double> losses, norms;
  uint64_t hash = 0;
  std::map<std::string, Tensor> state;  // whole
};

TpResult run_tp(const TpWay& way) {
  TpResult result;
  test::run_local_ranks(way.layout.world(), 0, [&](Communicator& comm) {
    const int part = Mesh(way.layout).coordinate(comm.rank(), Axis::kTensor);
    Chain chain = make_pairs({.rank = part, .size = way.layout.tp});
    const auto rule = make_update_rule({.name = way.rule});
    Schedule schedule =
        generate(specs_of(chain), way.layout,
                 {.slices = kTpSlices,
                  .bucket_bytes = 2'000,
                  .clip = true,
                  .tensor_sums = rule->reductions() > 0,
                  .exact = way.exact,
                  .precision = {way.dtype, way.dtype, way.dtype},
                  .memory = way.staged ? MemoryIn::kDevice : MemoryIn::kHost,
                  .optimizer_states = static_cast<int>(rule->states().size())});
    check(schedule, {});
    Executor executor(
        chain, std::move(schedule), *rule, comm,
        {.update = {.name = way.rule},
         .decay = {.weight_decay = 0.01},
         .clip = 0.5,
         .compute_on = way.staged ? ComputeOn::kStaged : ComputeOn::kHost});
    std::vector<double> losses, norms;
    for (int64_t step = 0; step < 3; ++step) {
      const StepResult done =
          executor.run({.step = step, .rate = 0.05, .batch = [=](int s) {
                          return tp_slice(step, s);
                        }});
      losses.push_back(done.loss);
      norms.push_back(done.norm);
    }
    add_pieces(executor, result.state);
    EXPECT_EQ(executor.compare_replicas().what, "");
    const uint64_t hash = executor.weights_hash();
    if (comm.rank() == 0) {
      result.losses = losses;
      result.norms = norms;
      result.hash = hash;
    }
  });
  return result;
}

void expect_same(const TpResult& result, const TpResult& wanted, double most = 1e-5) {
  for (size_t s = 0; s < wanted.losses.size(); ++s) {
    EXPECT_NEAR(result.losses[s], wanted.losses[s], most) << "step " << s;
    EXPECT_NEAR(result.norms[s], wanted.norms[s], most) << "step " << s;
  }
  ASSERT_EQ(result.state.size(), wanted.state.size());
  for (const auto& [name, tensor] : wanted.state)
    EXPECT_TRUE(at::allclose(result.state.at(name), tensor, 10 * most, most)) << name;
}

class TensorParallel : public testing::TestWithParam<const char*> {};

TEST_P(TensorParallel, TrainsAsOneRankThatHasAll) {
  const TpResult wanted = run_tp({.layout = {}, .rule = GetParam()});
  for (const bool staged : {false, true})
    for (const Layout& layout :
         {Layout{.tp = 2}, Layout{.dp = 2, .tp = 2},
          Layout{.dp = 2, .tp = 2, .shard = 1}, Layout{.dp = 2, .tp = 2, .shard = 2},
          Layout{.dp = 2, .tp = 2, .shard = 3}, Layout{.tp = 2, .pp = 2},
          Layout{.dp = 2, .tp = 2, .pp = 2, .shard = 3}, Layout{.tp = 4}}) {
      SCOPED_TRACE(testing::Message() << layout.text() << " staged " << staged);
      expect_same(run_tp({.layout = layout, .rule = GetParam(), .staged = staged}),
                  wanted);
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, TensorParallel, testing::Values("adamw", "lamb"));

TEST(TensorParallelDouble, AgreesToTheLastDigits) {
  for (const char* rule : {"adamw", "lamb"}) {
    const TpResult wanted = run_tp({.layout = {}, .rule = rule, .dtype = at::kDouble});
    for (const Layout& layout :
         {Layout{.dp = 4}, Layout{.dp = 2, .tp = 2, .shard = 1},
          Layout{.dp = 2, .tp = 2, .shard = 2}, Layout{.dp = 2, .tp = 2, .shard = 3},
          Layout{.dp = 2, .tp = 2, .pp = 2}}) {
      SCOPED_TRACE(layout.text());
      expect_same(run_tp({.layout = layout, .rule = rule, .dtype = at::kDouble}),
                  wanted, 1e-12);
    }
  }
}

TEST(TensorParallelExact, HasOneHashForAsManyParts) {
  const TpResult wanted = run_tp({.layout = {.tp = 2}, .exact = true});
  for (const Layout& layout :
       {Layout{.dp = 2, .tp = 2}, Layout{.dp = 4, .tp = 2, .shard = 2},
        Layout{.dp = 2, .tp = 2, .shard = 3}, Layout{.tp = 2, .pp = 4},
        Layout{.dp = 2, .tp = 2, .pp = 2, .shard = 1}})
    EXPECT_EQ(hex16(run_tp({.layout = layout, .exact = true}).hash), hex16(wanted.hash))
        << layout.text();
}

TEST(TensorParallelStart, HasTheFirstWeightsOfWholeTensors) {
  std::map<std::string, Tensor> whole, parts;
  const auto begin = [](int tp, std::map<std::string, Tensor>& state) {
    test::run_local_ranks(tp, 0, [&](Communicator& comm) {
      Chain chain = make_pairs({.rank = comm.rank(), .size = tp});
      const auto rule = make_update_rule({.name = "sgd"});
      Executor executor(chain, generate(specs_of(chain), {.tp = tp}, {.slices = 1}),
                        *rule, comm, {});
      add_pieces(executor, state);
    });
  };
  begin(1, whole);
  begin(3, parts);
  ASSERT_EQ(whole.size(), parts.size());
  for (const auto& [name, tensor] : whole)
    EXPECT_TRUE(tensor.equal(parts.at(name))) << name;
}

}  // namespace
}  // namespace cohort
