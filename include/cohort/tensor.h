// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Tensors and losses, as all of the library passes them on. Memory of a tensor belongs
// to all that hold a handle; nothing here locks, so a tensor is one thread's at a time.

namespace [[gnu::visibility("default")]] cohort {

// The one tensor of the project, as a light header: torch/torch.h takes 20 s to
// compile, this one 3.
using Tensor = at::Tensor;

// What flows between blocks. Most blocks take and give one tensor.
using Values = std::vector<Tensor>;

// A tensor of a model's state, under the name PyTorch's state_dict gives it.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// A box of a tensor: what one rank may have of it before it is cut further, into
// ranges. Columns of a matrix are a box, and so are some of the heads of a fused
// attention weight, if that is looked at as (3, heads, width, columns).
struct TensorBox {
  // A reshape of the tensor as it lies in memory, sizes from the slowest to the
  // fastest, in which the cut is a box. Empty: the box is the whole tensor.
  std::vector<int64_t> cut;
  // Indices [from, to) along each dimension of `cut`.
  std::vector<int64_t> from;
  std::vector<int64_t> to;

  bool is_whole() const { return cut.empty(); }
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// A loss that can be summed over slices and ranks exactly: the mean is sum / count,
// taken once, over everything (weights m_k / n for unequal shards).
struct WeightedLoss {
  Tensor sum;          // a scalar that requires grad
  double count = 0;    // samples or tokens that `sum` adds up
  double correct = 0;  // how many of them a classifier got right (evaluation only)
  // Where the count follows from what a batch holds: a scalar beside `sum`, so that
  // nobody waits for a device, and a step that is replayed counts anew. `count` then
  // says nothing.
  Tensor counted = {};
  // By Metrics::named: what each adds up over the samples that `count` counts
  // (evaluation only, where autograd is off).
  std::vector<double> named = {};

  double count_here() const {  // waits for a device
    return counted.defined() ? counted.item<double>() : count;
  }
};

// What a run tells of a model besides its loss and its samples per second.
struct Metrics {
  bool accuracy = false;           // correct answers, as a share of WeightedLoss::count
  bool perplexity = false;         // exp of the mean loss
  bool tokens_per_second = false;  // the count is one of tokens
  bool flops_per_step = false;
  // Metrics of one's own, told of each validation: the mean of WeightedLoss::named.
  std::vector<std::string> named = {};
};

// What stands behind the last block. The function is called for each slice, in the
// thread that computes, behind the forward of the last block: pure, as that is, and it
// may be called again for one slice. What it throws ends the rank, as there.
struct Loss {
  // `fields` are those below, in that order.
  std::function<WeightedLoss(const Values& outputs, const Values& fields)> function;
  std::vector<std::string> fields = {};  // fields of a batch that the function takes
  Metrics metrics = {};

  WeightedLoss operator()(const Values& outputs, const Values& given) const {
    return function(outputs, given);
  }
};

}  // namespace cohort
