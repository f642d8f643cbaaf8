// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/block.h"

// What blocks are made of: layers that put their tensors into the lists of a block.
//
//   cohort::TensorLists tensors;
//   const cohort::Linear linear(tensors, "fc", 784, 10, {.seed = 1});
//   chain.blocks.push_back(std::make_unique<cohort::FunctionBlock>(
//       "fc", std::move(tensors),
//       [linear](const cohort::Tensor& x, cohort::Context& context) {
//         return linear(x.flatten(1), context);
//       },
//       cohort::fields_of_layer(0)));
//
// A layer is a handle: copies share its tensors. Each tensor of a model needs a name of
// its own. Thread safety: layers are immutable once made, but for the memory of their
// tensors, which belongs to the engine.
//
// Failure: constructors leave sizes to LibTorch, as calls do with inputs: those that
// cannot be are a c10::Error, and end the program with its first line. Dropout alone
// checks what it is made with.

namespace [[gnu::visibility("default")]] cohort {

// The tensors of a block, in the order they were added, and what its layers call.
struct TensorLists {
  std::vector<NamedTensor> parameters;
  std::vector<ParameterCut> cuts;  // by parameter
  std::vector<NamedTensor> buffers;
  // In the order of forward, which is that in which layers are made; those of backward
  // are made in the opposite one.
  std::vector<BlockCall> forward_calls, backward_calls;

  // Registers a trained tensor and returns the handle that layers keep.
  Tensor add_parameter(std::string name, Tensor value, ParameterCut cut = {});
  Tensor add_buffer(std::string name, Tensor value);
};

// A block made of layers: it holds their tensors and leaves forward to the model.
class LayerBlock : public Block {
 public:
  const std::string& name() const override { return name_; }
  std::span<const NamedTensor> parameters() const override {
    return tensors_.parameters;
  }
  std::span<const NamedTensor> buffers() const override { return tensors_.buffers; }
  std::span<const ParameterCut> cuts() const override { return tensors_.cuts; }
  std::span<const std::string> fields() const override { return fields_; }
  std::vector<BlockCall> calls() const override;

 protected:
  explicit LayerBlock(std::string name, std::vector<std::string> fields = {})
      : name_(std::move(name)), fields_(std::move(fields)) {}
  TensorLists tensors_;

 private:
  std::string name_;
  std::vector<std::string> fields_;
};

// What the layer at that place of a stack takes of a batch: the first its "input".
inline std::vector<std::string> fields_of_layer(int64_t place) {
  if (place > 0) return {};
  return {"input"};
}

// A block whose forward is one function of one tensor: of the block before, or the one
// field of a batch that a first block takes.
using ForwardFunction = std::function<Tensor(const Tensor& input, Context& context)>;

class FunctionBlock final : public LayerBlock {
 public:
  FunctionBlock(std::string name, TensorLists tensors, ForwardFunction forward,
                std::vector<std::string> fields = {})
      : LayerBlock(std::move(name), std::move(fields)), forward_(std::move(forward)) {
    tensors_ = std::move(tensors);
  }
  Values forward(const Values& inputs, Context& context) override {
    return {forward_(inputs.at(0), context)};
  }

 private:
  ForwardFunction forward_;
};

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
  bool channels_last = true;  // for images and filters: 1.4x on CPU convolutions
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
// own statistics come out as a value of the context (law 1, docs/design.md); in
// evaluation the running ones are used. The output has the dtype of the input.
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

// Sets each value to zero with probability p and divides the rest by 1 - p; in
// evaluation it does nothing.
//
// Element j of a sample falls if a number in [0, 1) is below p that follows from seed,
// step, sample, name and j alone, where j counts in row-major order. So the mask depends
// neither on the slice a sample lies in, nor on the rank, nor on whether the block runs
// twice, nor on the device.
class Dropout {
 public:
  // `name` is the layer's path, unique in the model. ConfigError unless 0 <= p < 1.
  Dropout(std::string name, double p);

  // `input` has a row for each of the context's sample ids. Where it is a part of what
  // a layer computes, `first` is the place of its first element in the whole sample.
  Tensor operator()(const Tensor& input, Context& context, int64_t first = 0) const;

 private:
  uint32_t limit() const;  // what the upper 24 bits of a word are compared with
  float kept() const;      // what a value that stays is multiplied with
  Tensor device_mask(const Tensor& input, Context& context, int64_t first) const;

  std::string name_;
  double p_;
};

// Cross entropy of logits and class numbers, as (sum, count).
WeightedLoss cross_entropy(const Values& outputs, const Tensor& target);

// The loss of a classifier: that of its logits and the field "target".
Loss classifier_loss();

}  // namespace cohort
