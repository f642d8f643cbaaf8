// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/logits_block.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/nn/vocabulary_head.h"

namespace cohort {
namespace {

class LogitsBlock final : public Block {
 public:
  LogitsBlock(const LanguageHead& head, int64_t places)
      : head_(head), calls_(head.logit_calls(places)) {}

  const std::string& name() const override { return name_; }
  std::span<const NamedTensor> parameters() const override {
    return head_.parameters();
  }
  std::span<const NamedTensor> buffers() const override { return head_.buffers(); }
  std::span<const ParameterCut> cuts() const override { return head_.cuts(); }
  std::span<const std::string> fields() const override { return fields_; }
  std::vector<BlockCall> calls() const override { return calls_; }

  Values forward(const Values& inputs, Context& context) override {
    return {head_.logits_at(inputs.at(0), inputs.at(1), context)};
  }

 private:
  const LanguageHead& head_;
  const std::vector<BlockCall> calls_;
  const std::string name_ = "logits";
  const std::vector<std::string> fields_ = {"places"};
};

}  // namespace

std::unique_ptr<Block> make_logits_block(const Chain& chain, int64_t places) {
  const auto* const head =
      chain.blocks.empty()
          ? nullptr
          : dynamic_cast<const LanguageHead*>(chain.blocks.back().get());
  COHORT_CHECK(head, "[nn] logits of a chain that is no language model");
  return std::make_unique<LogitsBlock>(*head, places);
}

}  // namespace cohort
