// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/nn/cut_parameter.h"
#include "cohort/nn/part_calls.h"

namespace cohort {

// The end of a language model: logits of a vocabulary, of which ranks have different
// rows, and their cross entropy as a sum over tokens.
class VocabularyHead {
 public:
  struct Form {
    int64_t vocabulary = 0;
    int64_t tokens = 0;
    int64_t width = 0;
  };
  // Parameters that the caller has made, of which `bias` may be undefined; `weight` may
  // be that of the embedding.
  VocabularyHead(TensorLists& tensors, Tensor weight, Tensor bias, const Form& form,
                 const TensorPart& part);

  // Sum and count of the loss.
  Values operator()(const Tensor& input, const Tensor& target, Context& context) const;

  // For drawing tokens, in an evaluation: logits (samples, places, vocabulary) of
  // some places of each sequence, which `places` (samples, places) numbers.
  Tensor logits_at(const Tensor& input, const Tensor& places, Context& context) const;
  // What a block that ends so calls inside then, for so many places.
  std::vector<BlockCall> logit_calls(int64_t places) const;

 private:
  Tensor logits_of(const Tensor& input, Context& context) const;
  Tensor all_logits(const Tensor& part, Context& context) const;

  Tensor weight_, bias_;
  PartRange rows_;  // what of the vocabulary is here
  int64_t vocabulary_;
  TensorPart part_;
  SplitBegin begin_;
  std::vector<BlockCall> before_loss_;  // what the block calls up to there
};

// The last block of a language model. Its forward takes the field "target" and gives
// the loss; a block that stands in its place (logits_block.h) asks it for logits.
class LanguageHead : public LayerBlock {
 public:
  Values forward(const Values& inputs, Context& context) final {
    return head()(before_head(inputs.at(0), context), inputs.at(1), context);
  }
  // As of VocabularyHead.
  Tensor logits_at(const Tensor& input, const Tensor& places, Context& context) const {
    return head().logits_at(before_head(input, context), places, context);
  }
  std::vector<BlockCall> logit_calls(int64_t places) const {
    return head().logit_calls(places);
  }

 protected:
  LanguageHead() : LayerBlock("head", {"target"}) {}

 private:
  // What the block computes before the logits.
  virtual Tensor before_head(const Tensor& input, Context& context) const = 0;
  virtual const VocabularyHead& head() const = 0;
};

// The weights of a head: those of the embedding that is given, or if it is not tied its
// own, of that name.
struct TiedWeight {
  bool tie = true;
  NamedTensor tensor;
  ParameterCut cut;
};
Tensor add_head_weight(TensorLists& tensors, const std::string& name,
                       const TiedWeight& embedding, const std::vector<int64_t>& shape,
                       const LayerOptions& layers);

// The loss of a chain that ends so.
Loss language_loss();

}  // namespace cohort
