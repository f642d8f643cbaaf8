// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/nn/layer_block.h"

namespace cohort {

// Which part of each layer a rank computes, of as many as work on it together.
struct TensorPart {
  int rank = 0;
  int size = 1;
  // Between the layers that are cut, each has a part of every sequence instead of all.
  bool sequence = true;
};

// How layers are made. Initial values are keyed by seed and parameter name, so they
// do not depend on the order of construction or on the number of ranks.
struct LayerOptions {
  uint64_t seed = 0;
  bool channels_last = true;  // of images and filters: 1.4x on CPU convolutions
  // Batch normalisation over the slices that all data-parallel ranks compute at the
  // same time, not over each slice alone. Not for --exact.
  bool sync_batch_norm = false;
  TensorPart tensor = {};
};

// Precision: parameters may be float32, bfloat16 or float16 (the engine sets that, at
// any time). Linear and Conv2d compute in the dtype of their weights and cast an input
// that has another; norms and losses compute in float32 and keep float32 statistics.

// Fully connected layer, y = x W^T + b, initialised as PyTorch's. Its gradients are
// born in their bucket when the context offers one of the weights' dtype.
class Linear {
 public:
  Linear(TensorLists& tensors, const std::string& name, int64_t in, int64_t out,
         const LayerOptions& options);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  Tensor weight_;
  Tensor bias_;
};

struct ConvOptions {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = true;
};

// 2-d convolution of square filters.
class Conv2d {
 public:
  Conv2d(TensorLists& tensors, const std::string& name, int64_t in, int64_t out,
         const ConvOptions& shape, const LayerOptions& options);
  Tensor operator()(const Tensor& input) const;

 private:
  ConvOptions shape_;
  Tensor weight_;
  Tensor bias_;
};

// Batch normalisation over each slice, or those of all ranks. In training the batch's
// own statistics come out as a value of the context (law 1); in evaluation the running
// ones are used. The output has the dtype of the input.
class BatchNorm2d {
 public:
  BatchNorm2d(TensorLists& tensors, const std::string& name, int64_t channels,
              const LayerOptions& options = {});
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  bool is_synced_;
  Tensor weight_, bias_;
  Tensor running_mean_, running_var_;
};

// Cross entropy of logits and class numbers, as (sum, count).
WeightedLoss cross_entropy(const Values& outputs, const Tensor& target);

// The loss of a classifier: that of its logits and the field "target".
Loss classifier_loss();

}  // namespace cohort
