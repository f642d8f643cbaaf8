// SPDX-License-Identifier: Apache-2.0
// A bug that is put into a model, or into the samples of one stage, is found and named:
// which tensor, on which rank, by which action and collective.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <regex>

#include "cohort/nn/cross_entropy_function.h"
#include "cohort/nn/language_chain.h"
#include "cohort/nn/part_calls.h"
#include "cohort/nn/transformer_layers.h"
#include "cohort/nn/wrapped_block.h"
#include "cohort/train/layout_oracle.h"
#include "cohort/train/testing_oracle.h"

namespace cohort {
namespace {

using test::small_gpt;
using test::small_gpt_model;
using test::Tokens;
using testing::HasSubstr;

// Leaves out the first sum of a forward.
class ForgetfulCalls final : public BlockCalls {
 public:
  explicit ForgetfulCalls(BlockCalls& calls) : calls_(calls) {}
  int size(AxisSet axes) const override { return calls_.size(axes); }
  void all_reduce(AxisSet axes, Tensor& tensor) override {
    if (!std::exchange(forgets_, false)) calls_.all_reduce(axes, tensor);
  }
  void all_gather(AxisSet axes, Tensor& out, const Tensor& shard) override {
    calls_.all_gather(axes, out, shard);
  }
  void reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) override {
    calls_.reduce_scatter(axes, out, in);
  }
  void end_of_forward() { forgets_ = false; }

 private:
  BlockCalls& calls_;
  bool forgets_ = true;
};

class DroppedSum final : public WrappedBlock {
 public:
  using WrappedBlock::WrappedBlock;

  std::vector<BlockCall> calls() const override {
    auto calls = WrappedBlock::calls();
    calls.erase(std::ranges::find_if(calls, [](const BlockCall& call) {
      return call.when == BlockCall::When::kForward && call.op == CallOp::kAllReduce;
    }));
    return calls;
  }
  Values forward(const Values& inputs, Context& context) override {
    auto& forgetful =
        *kept_.emplace_back(std::make_unique<ForgetfulCalls>(*context.calls));
    Context changed = context;
    changed.calls = &forgetful;
    Values outputs = WrappedBlock::forward(inputs, changed);
    forgetful.end_of_forward();
    return outputs;
  }

 private:
  std::vector<std::unique_ptr<ForgetfulCalls>> kept_;  // backward calls them, too
};

class WrongScale final : public WrappedBlock {
 public:
  using WrappedBlock::WrappedBlock;

  Values forward(const Values& inputs, Context& context) override {
    return {WrappedBlock::forward(inputs, context)[0] * 1.000001};
  }
};

// Drops of what a block gives, with a mask that begins where the rank's part of the
// sequence does, or at the beginning of the whole sequence.
class Masked final : public WrappedBlock {
 public:
  Masked(std::unique_ptr<Block> block, const TensorPart& mask_of)
      : WrappedBlock(std::move(block)), mask_of_(mask_of) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor x = WrappedBlock::forward(inputs, context)[0];
    return {dropout_(x, context, first_element(mask_of_, x))};
  }

 private:
  Dropout dropout_{"mask", 0.5};
  TensorPart mask_of_;
};

// A head that brings the logits of all ranks together, and gives the loss of a split
// vocabulary the whole of them.
class FullLogitsHead final : public LayerBlock {
 public:
  FullLogitsHead(const TiedWeight& tied, const LayerOptions& layers)
      : LayerBlock("head", {"target"}),
        model_(small_gpt_model()),
        part_(layers.tensor),
        rows_(range_of(model_.vocab, part_)),
        norm_(tensors_, "transformer.ln_f", model_.width, 1e-5, layers),
        weight_(add_head_weight(tensors_, "", tied, {}, layers)),
        begin_(tensors_, model_.context, model_.width, part_) {
    declare_forward(tensors_, {.axes = kTensorAxis,
                               .op = CallOp::kAllGather,
                               .dtype = at::kDouble,
                               .per_sample = model_.context * rows_.room});
    declare_token_loss(tensors_, model_.context, part_);
  }

  Values forward(const Values& inputs, Context& context) override {
    const Tensor x = begin_(norm_(inputs.at(0), context), context);
    const Tensor mine = x.matmul(weight_.t()).flatten(0, 1).contiguous();
    Tensor all = at::empty({part_.size, mine.size(0), mine.size(1)}, mine.options());
    context.calls->all_gather(kTensorAxis, all, mine.detach());
    auto parts = all.unbind(0);
    parts[part_.rank] = mine;
    const Tensor logits = at::cat(parts, 1).narrow(1, 0, model_.vocab).contiguous();
    const PartRange whole{.count = model_.vocab, .room = model_.vocab};
    const TokenLoss loss = token_loss(logits, inputs.at(1), whole, part_, context);
    return {loss.sum, loss.count};
  }

 private:
  GptOptions model_;
  TensorPart part_;
  PartRange rows_;
  LayerNorm norm_;
  Tensor weight_;
  SplitBegin begin_;
};

// A head whose gradient is not added to that of the embedding, whose weights it has: it
// computes with a copy of its own.
class UntiedHead final : public WrappedBlock {
 public:
  UntiedHead(std::unique_ptr<Block> head, Tensor tied)
      : WrappedBlock(std::move(head)), tied_(std::move(tied)) {
    for (const auto& parameter : WrappedBlock::parameters()) {
      parameters_.push_back(parameter);
      if (parameter.name != kTied) continue;
      copy_ = parameter.tensor;
      parameters_.back().tensor = tied_;
    }
  }

  std::span<const NamedTensor> parameters() const override { return parameters_; }
  Values forward(const Values& inputs, Context& context) override {
    copy_.set_data(tied_.detach());
    return WrappedBlock::forward(inputs, context);
  }

 private:
  static constexpr const char* kTied = "transformer.wte.weight";
  Tensor tied_, copy_;
  std::vector<NamedTensor> parameters_;
};

using Change = std::function<void(Chain& chain, const TensorPart& part)>;

// `change` is for tensor-parallel ranks alone: what they are compared with is right.
OracleOptions changed(OracleOptions options, const Change& change) {
  const auto right = options.make_chain;
  options.make_chain = [=](const TensorPart& part) {
    Chain chain = right(part);
    if (part.size > 1) change(chain, part);
    return chain;
  };
  return options;
}

template <typename Changed>
Change in_block(int block) {
  return [=](Chain& chain, const TensorPart&) {
    chain.blocks[block] = std::make_unique<Changed>(std::move(chain.blocks[block]));
  };
}

const LayoutCase kWholeSequences{.layout = {.tp = 2}, .sequence = false};

// What is said of the step, without numbers of actions and sizes of deviations.
std::string found(const OracleOptions& options, const LayoutCase& one) {
  const Verdict verdict = LayoutOracle(options).compare(one);
  if (!verdict.deviation) return "nothing";
  return std::regex_replace(verdict.deviation->text(),
                            std::regex("(action|deviates by) [0-9.e+-]+"), "$1 #");
}

TEST(LayoutBugs, ADroppedSumIsNamed) {
  const Tokens data;
  EXPECT_EQ(found(changed(small_gpt(data), in_block<DroppedSum>(1)), kWholeSequences),
            "the loss deviates by # of its largest element on rank 0; "
            "last touched by action #, Forward of block 3 (head), slice "
            "7 with AllGather in tp; then action #, Reduce of the loss "
            "in all; began with the output of transformer.h.0 on rank 0: "
            "action #, Forward of block 1 (transformer.h.0), slice 0 "
            "with AllReduce in tp");
}

TEST(LayoutBugs, AWrongScaleIsNamed) {
  const Tokens data;
  EXPECT_EQ(found(changed(small_gpt(data), in_block<WrongScale>(2)), kWholeSequences),
            "the gradient of transformer.ln_f.bias deviates by # of its "
            "largest element on rank 0; last touched by action #, "
            "Backward of block 3 (head), slice 7 with AllReduce in tp; "
            "then action #, Update of bucket 1; began with the output of "
            "transformer.h.1 on rank 0: action #, Forward of block 2 "
            "(transformer.h.1), slice 0 with AllReduce in tp, AllReduce "
            "in tp");
}

TEST(LayoutBugs, FullLogitsInASplitLossAreNamed) {
  const Tokens data;
  const auto change = [](Chain& chain, const TensorPart& part) {
    const Block& first = *chain.blocks[0];
    chain.blocks.back() = std::make_unique<FullLogitsHead>(
        TiedWeight{true, first.parameters()[0], first.cuts()[0]},
        LayerOptions{.seed = 3, .tensor = part});
  };
  EXPECT_EQ(found(changed(small_gpt(data), change), kWholeSequences),
            "the loss deviates by # of its largest element on rank 0; "
            "last touched by action #, Forward of block 3 (head), slice "
            "7 with AllGather in tp, AllGather in tp; then action #, "
            "Reduce of the loss in all; began with the output of head on "
            "rank 0: action #, Forward of block 3 (head), slice 0 with "
            "AllGather in tp, AllGather in tp");
}

TEST(LayoutBugs, AMaskAtTheWrongOffsetIsNamed) {
  const Tokens data;
  const auto masked = [&](bool right) {
    OracleOptions options = small_gpt(data);
    const auto plain = options.make_chain;
    options.make_chain = [=](const TensorPart& part) {
      Chain chain = plain(part);
      chain.blocks[1] = std::make_unique<Masked>(std::move(chain.blocks[1]),
                                                 right ? part : TensorPart{});
      return chain;
    };
    return options;
  };
  EXPECT_EQ(found(masked(true), {.layout = {.tp = 2}}), "nothing");
  EXPECT_EQ(found(masked(false), {.layout = {.tp = 2}}),
            "the loss deviates by # of its largest element on rank 1; "
            "last touched by action #, Forward of block 3 (head), slice "
            "7 with AllGather in tp, AllGather in tp; then action #, "
            "Reduce of the loss in all; began with the output of "
            "transformer.h.0 on rank 1: action #, Forward of block 1 "
            "(transformer.h.0), slice 0 with AllGather in tp, "
            "ReduceScatter in tp, AllGather in tp, ReduceScatter in tp");
}

TEST(LayoutBugs, ATiedWeightThatIsNotSummedIsNamed) {
  const Tokens data;
  OracleOptions options = small_gpt(data);
  options.clip = 0;  // a wrong gradient would change the norm, and so all others
  const auto right = options.make_chain;
  const auto change = [right](Chain& chain, const TensorPart& part) {
    chain.blocks.back() = std::make_unique<UntiedHead>(
        std::move(right(part).blocks.back()), chain.blocks[0]->parameters()[0].tensor);
  };
  const auto told = [&](int places) {
    return found(changed(options, change), {.layout = {.tp = 2, .pp = places}});
  };
  EXPECT_EQ(told(1),
            "the gradient of transformer.wte.weight deviates by # of its "
            "largest element on rank 0; last touched by action #, "
            "Backward of block 0 (embedding), slice 7 with AllReduce in "
            "tp, AllGather in tp; then action #, Update of bucket 1");
  EXPECT_EQ(told(2),
            "the gradient of transformer.wte.weight deviates by # of its "
            "largest element on rank 0; last touched by action #, "
            "Backward of block 0 (embedding), slice 7 with AllReduce in "
            "tp, AllGather in tp; then action #, Reduce of bucket 2 in "
            "tied2; then action #, Update of bucket 2");
}

TEST(LayoutBugs, SlicesThatAStageSwapsAreNamed) {
  const auto told = [](const char* field) {
    const Tokens data(field);
    return found(small_gpt(data), {.layout = {.pp = 2}});
  };
  EXPECT_EQ(told("tokens"),
            "the loss deviates by # of its largest element on rank 0; "
            "last touched by action #, Reduce of the loss in all; began "
            "with the output of embedding on rank 0: action #, Forward "
            "of block 0 (embedding), slice 0");
  EXPECT_EQ(told("target"),
            "the loss deviates by # of its largest element on rank 1; "
            "last touched by action #, Forward of block 3 (head), slice "
            "7; then action #, Reduce of the loss in all; began with the "
            "output of head on rank 1: action #, Forward of block 3 "
            "(head), slice 0");
}

// As if a head were not tied at all.
TEST(LayoutBugs, ATensorThatOneRankHasNotIsNamed) {
  const Tokens data;
  const auto change = [](Chain& chain, const TensorPart& part) {
    GptOptions model = small_gpt_model();
    model.tie = false;
    chain = make_gpt(model, {.seed = 3, .tensor = part});
  };
  EXPECT_THAT(found(changed(small_gpt(data), change), {.layout = {.tp = 2}}),
              HasSubstr("lm_head.weight, which one rank has not"));
}

}  // namespace
}  // namespace cohort
