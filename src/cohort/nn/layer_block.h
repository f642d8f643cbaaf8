// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cohort/step/block.h"

namespace cohort {

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

}  // namespace cohort
