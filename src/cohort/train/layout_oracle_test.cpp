// SPDX-License-Identifier: Apache-2.0
// Layouts that are right are found equal; and a bug that is put into a model, or into
// the samples of a stage, is found and named.
#include "cohort/train/layout_oracle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/nn/language_models.h"

namespace cohort {
namespace {

using testing::HasSubstr;

constexpr int64_t kOracleTokens = 8, kOracleVocabulary = 19;

class Tokens final : public Dataset {
 public:
  // `shifted`: who asks for targets alone gets those of the next sample.
  explicit Tokens(bool shifted = false) : shifted_(shifted) {}

  int64_t size() const override { return 16; }
  std::span<const std::string> fields() const override { return fields_; }
  std::string describe() const override { return "tokens"; }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    Batch batch = empty_batch(*this, ids, fields);
    const bool alone = fields.size() == 1 && fields[0] == "target";
    for (auto& [name, tensor] : batch.fields) {
      tensor = at::empty({batch.count, kOracleTokens}, at::kLong);
      const int64_t later = name == "target" ? 1 : 0;
      for (int64_t row = 0; row < batch.count; ++row)
        for (int64_t t = 0; t < kOracleTokens; ++t)
          tensor[row][t] =
              ((ids[row] + (shifted_ && alone ? 1 : 0)) * 7 + (t + later) * 5 + t * t) %
              kOracleVocabulary;
    }
    return batch;
  }

 private:
  bool shifted_;
  std::vector<std::string> fields_ = {"tokens", "target"};
};

// Leaves out the first sum of a forward, or takes its own for what all gathered.
class ForgetfulCalls final : public BlockCalls {
 public:
  void attach(BlockCalls* calls) { calls_ = calls; }
  int size(AxisSet axes) const override { return calls_->size(axes); }
  void all_reduce(AxisSet axes, Tensor& tensor) override {
    if (first_of_forward_) {
      first_of_forward_ = false;
      return;
    }
    calls_->all_reduce(axes, tensor);
  }
  void all_gather(AxisSet axes, Tensor& out, const Tensor& shard) override {
    calls_->all_gather(axes, out, shard);
    if (takes_own_) out.view({-1, shard.numel()}).copy_(shard.reshape({1, -1}));
  }
  void reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) override {
    calls_->reduce_scatter(axes, out, in);
  }
  void begin(bool drops) { (drops ? first_of_forward_ : takes_own_) = true; }
  void end() { first_of_forward_ = takes_own_ = false; }

 private:
  BlockCalls* calls_ = nullptr;
  bool first_of_forward_ = false, takes_own_ = false;
};

enum class Bug { kDroppedSum, kOwnForAll, kWrongScale, kWrongMask };

class BrokenBlock final : public Block {
 public:
  BrokenBlock(std::unique_ptr<Block> block, Bug bug, const TensorPart& part)
      : block_(std::move(block)), bug_(bug), part_(part) {}

  const std::string& name() const override { return block_->name(); }
  std::span<const NamedTensor> parameters() const override {
    return block_->parameters();
  }
  std::span<const NamedTensor> buffers() const override { return block_->buffers(); }
  std::span<const ParameterCut> cuts() const override { return block_->cuts(); }
  std::span<const std::string> fields() const override { return block_->fields(); }
  std::vector<BlockCall> calls() const override {
    auto calls = block_->calls();
    const auto is_dropped = [](const BlockCall& call) {
      return call.when == BlockCall::When::kForward && call.op == CallOp::kAllReduce;
    };
    const auto found = std::ranges::find_if(calls, is_dropped);
    if (bug_ == Bug::kDroppedSum && found != calls.end()) calls.erase(found);
    return calls;
  }

  Values forward(const Values& inputs, Context& context) override {
    Context changed = context;
    if (bug_ == Bug::kWrongMask && part_.rank == 1) ++changed.seed;
    if ((bug_ == Bug::kDroppedSum || bug_ == Bug::kOwnForAll) && context.calls) {
      forgetful_.attach(context.calls);
      forgetful_.begin(bug_ == Bug::kDroppedSum);
      changed.calls = &forgetful_;
    }
    Values outputs = block_->forward(inputs, changed);
    forgetful_.end();
    if (bug_ == Bug::kWrongScale && part_.size > 1) outputs[0] = outputs[0] * 1.000001;
    return outputs;
  }

 private:
  std::unique_ptr<Block> block_;
  Bug bug_;
  TensorPart part_;
  ForgetfulCalls forgetful_;
};

// A head whose gradient is not added to that of the embedding, whose weights it has: it
// computes with a copy of its own.
class UntiedHead final : public Block {
 public:
  UntiedHead(std::unique_ptr<Block> head, Tensor tied)
      : head_(std::move(head)), tied_(std::move(tied)) {
    for (const auto& parameter : head_->parameters()) {
      parameters_.push_back(parameter);
      if (parameter.name != kTied) continue;
      copy_ = parameter.tensor;
      parameters_.back().tensor = tied_;
    }
  }

  const std::string& name() const override { return head_->name(); }
  std::span<const NamedTensor> parameters() const override { return parameters_; }
  std::span<const NamedTensor> buffers() const override { return head_->buffers(); }
  std::span<const ParameterCut> cuts() const override { return head_->cuts(); }
  std::span<const std::string> fields() const override { return head_->fields(); }
  std::vector<BlockCall> calls() const override { return head_->calls(); }

  Values forward(const Values& inputs, Context& context) override {
    copy_.set_data(tied_.detach());
    return head_->forward(inputs, context);
  }

  static constexpr const char* kTied = "transformer.wte.weight";

 private:
  std::unique_ptr<Block> head_;
  Tensor tied_, copy_;
  std::vector<NamedTensor> parameters_;
};

constexpr int kOracleBlocks = 4;  // embedding, two of a transformer, head

OracleOptions small_gpt(const Dataset& data, double dropout = 0) {
  return {.make_chain =
              [dropout](const TensorPart& part) {
                return make_gpt({.vocab = kOracleVocabulary,
                                 .context = kOracleTokens,
                                 .width = 16,
                                 .depth = 2,
                                 .heads = 4,
                                 .dropout = dropout},
                                {.seed = 3, .tensor = part});
              },
          .data = &data,
          .update = {.name = "adamw"},
          .clip = 1};
}

OracleOptions with_bug(OracleOptions options, int block, Bug bug) {
  const auto right = options.make_chain;
  options.make_chain = [=](const TensorPart& part) {
    Chain chain = right(part);
    if (part.size > 1)
      chain.blocks[block] =
          std::make_unique<BrokenBlock>(std::move(chain.blocks[block]), bug, part);
    return chain;
  };
  return options;
}

// Four heads cannot be cut in three.
std::vector<LayoutCase> layouts_of_four() {
  auto cases = every_layout(4, kOracleBlocks, 8);
  std::erase_if(cases, [](const LayoutCase& one) { return one.layout.tp == 3; });
  return cases;
}

const LayoutCase kWholeSequences{.layout = {.tp = 2}, .sequence = false};

TEST(LayoutOracle, FindsEveryLayoutOfFourRanksEqual) {
  const Tokens data;
  LayoutOracle oracle(small_gpt(data, 0.1));
  for (const auto& one : layouts_of_four()) {
    const Verdict verdict = oracle.compare(one);
    EXPECT_FALSE(verdict.deviation) << one.text() << ": " << verdict.deviation->text();
  }
}

TEST(LayoutOracle, FindsEveryBitEqualWithAsManyParts) {
  const Tokens data;
  OracleOptions options = small_gpt(data);
  options.exact = true;
  LayoutOracle oracle(std::move(options));
  for (const auto& one : layouts_of_four()) {
    const Verdict verdict = oracle.compare(one);
    EXPECT_FALSE(verdict.deviation) << one.text() << ": " << verdict.deviation->text();
  }
}

std::string found(const OracleOptions& options, const LayoutCase& one) {
  const Verdict verdict = LayoutOracle(options).compare(one);
  return verdict.deviation ? verdict.deviation->text() : "nothing";
}

TEST(LayoutOracle, NamesADroppedSum) {
  const Tokens data;
  EXPECT_THAT(found(with_bug(small_gpt(data), 1, Bug::kDroppedSum), kWholeSequences),
              HasSubstr("the loss deviates"));
}

TEST(LayoutOracle, NamesAWrongScale) {
  const Tokens data;
  EXPECT_THAT(found(with_bug(small_gpt(data), 2, Bug::kWrongScale), kWholeSequences),
              HasSubstr("the gradient of transformer.ln_f"));
}

// As if logits were whole that are cut.
TEST(LayoutOracle, NamesALossOverAPartOfTheVocabulary) {
  const Tokens data;
  EXPECT_THAT(found(with_bug(small_gpt(data), 3, Bug::kOwnForAll), kWholeSequences),
              HasSubstr("the loss deviates"));
}

TEST(LayoutOracle, NamesAMaskAtTheWrongPlace) {
  const Tokens data;
  EXPECT_THAT(
      found(with_bug(small_gpt(data, 0.5), 1, Bug::kWrongMask), kWholeSequences),
      HasSubstr("deviates by"));
}

TEST(LayoutOracle, NamesATiedWeightThatIsNotSummed) {
  const Tokens data;
  OracleOptions options = small_gpt(data);
  options.clip = 0;  // a wrong gradient would change the norm, and so all others
  const auto right = options.make_chain;
  options.make_chain = [right](const TensorPart& part) {
    Chain chain = right(part), other = right(part);
    if (part.size > 1)
      chain.blocks.back() = std::make_unique<UntiedHead>(
          std::move(other.blocks.back()), chain.blocks[0]->parameters()[0].tensor);
    return chain;
  };
  for (const int places : {1, 2})
    EXPECT_THAT(found(options, {.layout = {.tp = 2, .pp = places}}),
                HasSubstr("the gradient of transformer.wte.weight deviates"));
}

// As if a head were not tied at all.
TEST(LayoutOracle, NamesATensorThatOneRankHasNot) {
  const Tokens data;
  OracleOptions options = small_gpt(data);
  const auto right = options.make_chain;
  options.make_chain = [right](const TensorPart& part) {
    if (part.size == 1) return right(part);
    return make_gpt({.vocab = kOracleVocabulary,
                     .context = kOracleTokens,
                     .width = 16,
                     .depth = 2,
                     .heads = 4,
                     .tie = false},
                    {.seed = 3, .tensor = part});
  };
  EXPECT_THAT(found(options, {.layout = {.tp = 2}}),
              HasSubstr("lm_head.weight, which one rank has not"));
}

TEST(LayoutOracle, NamesSlicesThatAreSwapped) {
  const Tokens data(/*shifted=*/true);
  EXPECT_THAT(found(small_gpt(data), {.layout = {.pp = 2}}),
              HasSubstr("the loss deviates"));
}

TEST(LayoutOracle, RefusesWhatThereIsNot) {
  const Tokens data;
  LayoutOracle oracle(small_gpt(data));
  EXPECT_THROW(oracle.compare({.layout = {.tp = 3}}), ConfigError);
  EXPECT_THROW(oracle.compare({.layout = {.pp = 5}}), ConfigError);
}

}  // namespace
}  // namespace cohort
