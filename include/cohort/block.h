// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/block_call.h"
#include "cohort/tensor.h"

// A model as a chain of blocks. The engine shards, recomputes, offloads, cuts and
// replays whole blocks; layers.h has what most blocks are made of. A model that is no
// chain is a chain of one block, or a module under DataParallel (data_parallel.h).
//
//   cohort::Chain chain{.blocks = {}, .loss = cohort::classifier_loss()};
//   chain.blocks.push_back(...);  // each is fed by the one before
//
// Memory: a chain owns its blocks, and they own their tensors. Who made the chain keeps
// it alive, and changes nothing of it, while something is trained by it; a recipe gives
// it away to the run.

namespace [[gnu::visibility("default")]] cohort {

// The engine has these: a block hands them on to its layers.
class GradSink;
class DeviceRandom;
class LogitKernels;

// What forward learned for a running statistic. It is a value: only Commit applies it
// (law 1, docs/design.md), so an abandoned or repeated forward leaves no trace.
struct Statistic {
  Tensor buffer;          // one of the block's buffers, of float32
  Tensor value;           // what this slice gave
  double momentum = 0.1;  // buffer = (1 - momentum) * buffer + momentum * value
  int slice = 0;          // counted within the rank
};

enum class Phase { kTrain, kEvaluate };

// All that a block may know besides its inputs. Equal contexts and inputs give
// equal outputs.
struct Context {
  int64_t step = 0;
  int slice = 0;                        // number within the global batch
  std::span<const int64_t> sample_ids;  // those of this slice
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
  std::vector<int64_t> shape;  // the whole parameter's; empty: the rank has all of it
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
//
// Failure: what forward throws ends the step, and the rank with one line; the others
// lose a peer. What a user can mend is a ConfigError of the constructor.
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

// A model as a list of blocks, and the loss behind the last one.
struct Chain {
  std::vector<std::unique_ptr<Block>> blocks;
  Loss loss;

  std::vector<NamedTensor> parameters() const;
  std::vector<NamedTensor> buffers() const;
  // What blocks take of a batch, each field once; and what blocks and loss take.
  std::vector<std::string> block_fields() const;
  std::vector<std::string> fields() const;
};

}  // namespace cohort
