// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/core/tensor.h"
#include "cohort/step/block_call.h"
#include "cohort/step/logit_kernels.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {

// What flows between blocks. Most blocks take and give one tensor.
using Values = std::vector<Tensor>;

// What forward learned for a running statistic. It is a value: only Commit applies
// it (law 1), so an abandoned or repeated forward leaves no trace.
struct Statistic {
  Tensor buffer;          // one of the block's buffers, of float32
  Tensor value;           // of this slice
  double momentum = 0.1;  // buffer = (1 - momentum) * buffer + momentum * value
  int slice = 0;          // counted within the rank
};

// What makes a parameter's gradient later, by the target that it will then be written
// to.
struct GradTarget;
using LaterGradients = std::map<const GradTarget*, std::function<void()>>;

// Where the gradient of a parameter may be written directly, so that it is born in
// its bucket. Undefined: nowhere, return it as usual.
struct GradTarget {
  Tensor view;
  bool accumulate = false;  // add to what is there, from earlier slices
  // In a backward of two parts: whoever can make the gradient without the graph leaves
  // here how, and returns none. Before that is called, the target is filled in. Null:
  // now or never.
  LaterGradients* later = nullptr;
};

// A target that is filled in before the backward that writes to it: while slices are
// under way nobody knows yet where their gradients will have room. Null: there is none.
using GradCell = std::shared_ptr<const GradTarget>;

// Hands out cells during a forward; for each parameter at most one, because two
// writers of one target would overwrite each other.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual GradCell take(const Tensor& parameter) = 0;
};

// Random numbers of the samples at hand, made on a device from keys in its memory: so a
// captured step draws new ones each time it is replayed.
class DeviceRandom {
 public:
  virtual ~DeviceRandom() = default;
  // random_bits(RandomKey::of_sample(...), i) for `count` numbers i from `first` on, a
  // row a sample, int64.
  virtual Tensor bits(const std::string& operation, int64_t first, int64_t count) = 0;
};

enum class Phase { kTrain, kEvaluate };

// All that a block may know besides its inputs. Equal contexts and inputs give
// equal outputs.
struct Context {
  int64_t step = 0;
  int slice = 0;                        // of the global batch
  std::span<const int64_t> sample_ids;  // of this slice
  uint64_t seed = 0;
  Phase phase = Phase::kTrain;
  bool recompute = false;
  GradSink* grads = nullptr;       // null: gradients are returned
  DeviceRandom* random = nullptr;  // null: the host draws, by the fields above
  LogitKernels* logits = nullptr;  // null: operations of LibTorch
  std::vector<Statistic>* statistics = nullptr;  // null: not kept
  BlockCalls* calls = nullptr;                   // null: there is nobody else
};

// What a rank has of a parameter of which tensor-parallel ranks have different parts.
struct ParameterCut {
  std::vector<int64_t> shape;  // of the whole parameter; empty: the rank has all of it
  // Its elements begin the rank's tensor, in order. What follows them is padding, there
  // so that ranks have tensors of one shape: it is zero, has no gradient, and is no
  // state.
  TensorBox box = {};

  bool is_whole() const { return shape.empty(); }
};

// The unit of sharding, recompute, offload and pipeline cut.
//
// forward is pure: it changes neither parameters nor buffers, draws random numbers
// only from keys of its Context, and communicates only as it declares. It may be
// run twice, or its result thrown away. Thread safety: forwards of different
// slices may run side by side.
class Block {
 public:
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  virtual const std::string& name() const = 0;

  // What is trained, and what is only kept. The handles stay the same for the life
  // of the block; the engine may move their storage.
  virtual std::span<const NamedTensor> parameters() const = 0;
  virtual std::span<const NamedTensor> buffers() const = 0;
  // By parameter: what the tensor is of it. None: all are whole. Parts of one parameter
  // have one cut and one shape on all tensor-parallel ranks; what is whole has the same
  // gradient on all of them.
  virtual std::span<const ParameterCut> cuts() const { return {}; }

  // The fields of a batch that forward takes, behind the values of the block before: a
  // first block takes nothing else. They have no gradient. The same for the life of the
  // block.
  virtual std::span<const std::string> fields() const = 0;

  virtual Values forward(const Values& inputs, Context& context) = 0;
  // The collectives inside, in the order of forward, and in that of backward. The same
  // on every rank.
  virtual std::vector<BlockCall> calls() const { return {}; }

 protected:
  Block() = default;
};

// A loss that can be summed over slices and ranks exactly: the mean is sum / count,
// taken once, over everything (weights m_k / n for unequal shards).
struct WeightedLoss {
  Tensor sum;          // a scalar that requires grad
  double count = 0;    // samples or tokens that `sum` adds up
  double correct = 0;  // of them, how many a classifier got right (evaluation only)
  // Where the count follows from what a batch holds: a scalar beside `sum`, so that
  // nobody waits for a device, and a step that is replayed counts anew. `count` then
  // says nothing.
  Tensor counted = {};

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
};

// What stands behind the last block.
struct Loss {
  // `fields` are those below, in that order.
  std::function<WeightedLoss(const Values& outputs, const Values& fields)> function;
  std::vector<std::string> fields = {};  // of a batch, that the function takes
  Metrics metrics = {};

  WeightedLoss operator()(const Values& outputs, const Values& given) const {
    return function(outputs, given);
  }
};

// The same values as leaves of a new graph: each block's backward is a graph of its
// own, which ends where the block begins.
Values cut_graph(const Values& values, bool needs_gradient);

// A parameter of the block as the state has it: the whole it is of, and which part.
TensorSpec parameter_spec(const Block& block, size_t index);

// Adds those that are not there yet.
void add_fields(std::span<const std::string> more, std::vector<std::string>& fields);

// A model as a list of blocks, and the loss behind the last one.
struct Chain {
  std::vector<std::unique_ptr<Block>> blocks;
  Loss loss;

  std::vector<NamedTensor> parameters() const;
  std::vector<NamedTensor> buffers() const;
  std::vector<TensorSpec> parameter_specs() const;  // in the order of parameters()
  // What blocks take of a batch, each field once; and what blocks and loss take.
  std::vector<std::string> block_fields() const;
  std::vector<std::string> fields() const;
};

}  // namespace cohort
