// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/block_outputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/nn/wrapped_block.h"

namespace cohort {
namespace {

class WatchedBlock final : public WrappedBlock {
 public:
  WatchedBlock(std::unique_ptr<Block> block, int number, OutputSeen seen)
      : WrappedBlock(std::move(block)), number_(number), seen_(std::move(seen)) {}

  Values forward(const Values& inputs, Context& context) override {
    Values outputs = WrappedBlock::forward(inputs, context);
    seen_({.block = number_, .slice = context.slice}, outputs);
    return outputs;
  }

 private:
  int number_;
  OutputSeen seen_;
};

// The two where they are about the same; undefined if they cannot be.
std::pair<Tensor, Tensor> common(Tensor given, Tensor wanted, int part) {
  if (given.dim() != wanted.dim()) return {};
  int cut = -1;
  for (int dim = 0; dim < given.dim(); ++dim) {
    if (given.size(dim) == wanted.size(dim)) continue;
    if (cut >= 0) return {};
    cut = dim;
  }
  if (cut < 0) return {given, wanted};
  const int64_t first = part * given.size(cut);
  const int64_t count = std::min(given.size(cut), wanted.size(cut) - first);
  if (count <= 0) return {};
  return {given.narrow(cut, 0, count), wanted.narrow(cut, first, count)};
}

double difference(const Tensor& given, const Tensor& wanted) {
  if (given.numel() == 0 || given.equal(wanted)) return 0;
  const auto largest = [](const Tensor& tensor) {
    return tensor.to(at::kDouble).abs().max().item().toDouble();
  };
  const double by = largest(given.to(at::kDouble) - wanted.to(at::kDouble));
  return std::isnan(by) ? INFINITY : by / largest(wanted);
}

}  // namespace

void watch_outputs(Chain& chain, const OutputSeen& seen) {
  for (size_t b = 0; b < chain.blocks.size(); ++b)
    chain.blocks[b] = std::make_unique<WatchedBlock>(std::move(chain.blocks[b]),
                                                     static_cast<int>(b), seen);
}

double output_difference(const Values& given, const Values& wanted, int part) {
  double largest = 0;
  for (size_t i = 0; i < std::min(given.size(), wanted.size()); ++i) {
    if (!given[i].defined() || !wanted[i].defined()) continue;
    const auto [one, other] = common(given[i].detach(), wanted[i].detach(), part);
    if (one.defined()) largest = std::max(largest, difference(one, other));
  }
  return largest;
}

}  // namespace cohort
