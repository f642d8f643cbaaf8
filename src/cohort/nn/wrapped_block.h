// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/block.h"

namespace cohort {

// A block with another one inside, which it asks for all that it does not change.
class WrappedBlock : public Block {
 public:
  explicit WrappedBlock(std::unique_ptr<Block> block) : block_(std::move(block)) {}

  const std::string& name() const override { return block_->name(); }
  std::span<const NamedTensor> parameters() const override {
    return block_->parameters();
  }
  std::span<const NamedTensor> buffers() const override { return block_->buffers(); }
  std::span<const ParameterCut> cuts() const override { return block_->cuts(); }
  std::span<const std::string> fields() const override { return block_->fields(); }
  std::vector<BlockCall> calls() const override { return block_->calls(); }
  Values forward(const Values& inputs, Context& context) override {
    return block_->forward(inputs, context);
  }

 private:
  std::unique_ptr<Block> block_;
};

}  // namespace cohort
