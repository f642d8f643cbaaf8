// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/layers.h"
#include "cohort/nn/linear_function.h"
#include "cohort/nn/part_calls.h"

namespace cohort {

// Layers of transformers. Activations are (samples, tokens, width); layers compute in
// the dtype of their weights, norms inside in float32 or more. Tensor-parallel ranks
// (LayerOptions::tensor) have parts of them; a rank alone has the plain layer. Layers
// are made in the order of forward, as the calls they declare.

// A linear layer whose weights are normal numbers at first, and its biases zero.
class Projection {
 public:
  enum class Cut {
    kNone,
    kColumns,  // a rank computes some of the outputs
    kRows,     // a rank has some of the inputs; what the ranks compute adds up
  };
  struct Form {
    int64_t in = 0;
    int64_t out = 0;
    int64_t tokens = 0;  // in a sequence; where calls depend on it
    Cut cut = Cut::kNone;
    int64_t groups = 1;  // groups of outputs, each of which is cut alike
    bool bias = true;
    WeightOrder order = WeightOrder::kOutIn;
    double deviation = 0.02;
  };
  // Parameters `name`.weight and, if there is one, `name`.bias.
  Projection(TensorLists& tensors, const std::string& name, const Form& form,
             const LayerOptions& options);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  static SplitEnd end_of(TensorLists& tensors, const Form& form,
                         const TensorPart& part);
  static SummedGradients whole_of(TensorLists& tensors, const Form& form,
                                  const TensorPart& part);
  Tensor of_parts(const Tensor& input, Context& context) const;

  Form form_;
  TensorPart part_;
  Tensor weight_, bias_;
  SplitEnd end_;
  SummedGradients whole_;  // what is not cut, of weight and bias
};

// Normalisation over the width, with the names of torch.nn.LayerNorm.
class LayerNorm {
 public:
  LayerNorm(TensorLists& tensors, const std::string& name, int64_t width, double eps,
            const LayerOptions& options);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  double eps_;
  Tensor weight_, bias_;
  SummedGradients whole_;
};

// Division by the root of the mean square (Zhang and Sennrich 2019), without bias.
class RmsNorm {
 public:
  RmsNorm(TensorLists& tensors, const std::string& name, int64_t width, double eps,
          const LayerOptions& options);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  double eps_;
  Tensor weight_;
  SummedGradients whole_;
};

// A row for each token of a vocabulary, of which ranks have different rows.
class TokenEmbedding {
 public:
  TokenEmbedding(TensorLists& tensors, const std::string& name, int64_t vocabulary,
                 int64_t tokens, int64_t width, const LayerOptions& options);
  // (samples, tokens) of int64, to all tokens or a rank's part of every sequence.
  Tensor operator()(const Tensor& tokens, Context& context) const;

 private:
  Tensor weight_;
  int64_t first_, rows_;  // what of the vocabulary is here
  TensorPart part_;
  SplitEnd end_;
};

// A table that every rank has whole: rows for the places in a sequence, or the types of
// tokens.
class RowTable {
 public:
  RowTable(TensorLists& tensors, const std::string& name, int64_t rows, int64_t width,
           const LayerOptions& options);
  // So many rows from `first` on; ConfigError unless they are there.
  Tensor operator()(int64_t first, int64_t count, Context& context) const;

 private:
  std::string name_;
  Tensor weight_;
  SummedGradients whole_;
};

// `residual` and what a dropout leaves of `branch`, either a rank's part of a sequence.
Tensor add_dropped(const Tensor& residual, const Tensor& branch, const Dropout& dropout,
                   const TensorPart& part, Context& context);

}  // namespace cohort
