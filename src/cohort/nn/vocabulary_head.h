// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/nn/cut_parameter.h"
#include "cohort/nn/part_calls.h"

namespace cohort {

// What a language model's chain ends in.
enum class ModelEnd {
  kLoss,    // takes the field "target"
  kLogits,  // (samples, tokens, vocabulary), for who draws tokens
};

// The end of a language model: logits of a vocabulary, of which ranks have different
// rows, and their cross entropy as a sum over tokens.
class VocabularyHead {
 public:
  struct Form {
    int64_t vocabulary = 0;
    int64_t tokens = 0;
    int64_t width = 0;
    ModelEnd end = ModelEnd::kLoss;
  };
  // Parameters that the caller has made, of which `bias` may be undefined; `weight` may
  // be that of the embedding.
  VocabularyHead(TensorLists& tensors, Tensor weight, Tensor bias, const Form& form,
                 const TensorPart& part);

  // Sum and count of the loss, or with an undefined `target` logits.
  Values operator()(const Tensor& input, const Tensor& target, Context& context) const;

 private:
  Tensor logits_of(const Tensor& input, Context& context) const;
  Tensor all_logits(const Tensor& part, Context& context) const;

  Tensor weight_, bias_;
  PartRange rows_;  // of the vocabulary, that are here
  int64_t vocabulary_;
  TensorPart part_;
  SplitBegin begin_;
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
Loss language_loss(ModelEnd end);
// What its last block takes of a batch.
std::vector<std::string> fields_of_end(ModelEnd end);

}  // namespace cohort
