// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cohort/engine/cuda/kernels/kernel_arguments.h"
#include "cohort/engine/sum.h"
#include "cohort/step/logit_kernels.h"
#include "cohort/tensor.h"
#include "cohort/update_rule.h"

namespace cohort {

// StepNumbers (kernels/kernel_arguments.h) lie in memory of the device, in a tensor of
// bytes.
StepNumbers step_numbers_of(const UpdateOptions& options, const StepScalars& scalars);
Tensor make_step_numbers(at::Device device);
// A view of them as make_step_numbers() has them, for as long as they live.
Tensor bytes_of(StepNumbers& numbers);
// Waits.
void send_step_numbers(const Tensor& to, StepNumbers numbers);
StepNumbers read_step_numbers(const Tensor& from);  // waits
// Views of one int32: what writes there, a kernel or a copy, opens and closes an
// update that has been launched or captured already.
Tensor gate_of(const Tensor& numbers);
Tensor not_finite_of(const Tensor& numbers);

// A stretch of a shard that is updated alike. One that adapts is what the shard holds
// of one tensor: whole chunks from the tensor's start, the last of them may be short.
struct UpdateRange {
  int64_t begin = 0;  // elements of the shard
  int64_t end = 0;
  ParameterTraits traits;
  // Only for a rule with reductions(), of what adapts: its row of the totals, and the
  // row of the sums of chunks where its first chunk goes.
  int64_t place = -1;
  int64_t slot = -1;
};

// What an update of a shard changes. All are flat and as long as the shard.
struct ShardMemory {
  Tensor master;               // float32
  std::vector<Tensor> states;  // float32, in the order of UpdateRule::states()
  Tensor published;            // the parameter as it is computed with; or undefined
};

// An update rule over one shard, in one launch. Elements in no range stay as they are.
class ShardUpdate {
 public:
  virtual ~ShardUpdate() = default;
  ShardUpdate(const ShardUpdate&) = delete;
  ShardUpdate& operator=(const ShardUpdate&) = delete;

  // sums[slot] = those of each chunk of what adapts (UpdateRule::reduce); `sums` is
  // float64 and has reductions() columns. Changes nothing else, whatever the gate says.
  virtual void reduce(const ShardMemory& shard, const Tensor& gradient,
                      const Tensor& numbers, const Tensor& sums) = 0;

  // UpdateRule::apply, and published = master, rounded. With a closed gate nothing
  // changes. `totals`: float64, reductions() columns; not looked at without reductions.
  virtual void apply(const ShardMemory& shard, const Tensor& gradient,
                     const Tensor& numbers, const Tensor& totals) = 0;

 protected:
  ShardUpdate() = default;
};

struct ShardUpdateOptions {
  UpdateOptions rule;
  std::vector<UpdateRange> ranges;
  at::ScalarType gradient = at::kFloat;  // or bfloat16, float16
  std::optional<at::ScalarType> published;
};

// What is done to the state of a rank where it lies: on the host by the loops of
// engine/sum.h and optim/, on a GPU by kernels made of the same text.
//
// Both give the same bits for every element and every sum, whatever the length and the
// alignment; where a result is no number both say so, but its bits may differ. Tensors
// are flat, contiguous, on device() and of the dtypes named; gradients are float32,
// bfloat16 or float16. Outputs may be one of the inputs, but not overlap it otherwise.
//
// On a GPU calls start work on the calling thread's current stream, allocate nothing
// and wait for nothing: they may be captured, and a replay reads numbers and flags as
// they are then. Tensors and updates must live until the work is done, and as long as
// a graph that holds it. Only make_shard_update() and the tables are slow: call them
// once, beforehand. Kernels must outlive the updates they made.
//
// Failure: BugError for tensors that do not fit; CUDA's own errors come as c10::Error.
// Thread safety: none.
class StateKernels {
 public:
  virtual ~StateKernels() = default;
  StateKernels(const StateKernels&) = delete;
  StateKernels& operator=(const StateKernels&) = delete;

  virtual at::Device device() const = 0;

  // As in engine/sum.h; `out` of the first three and `in` of narrow are float32.
  virtual void sum_in_order(std::span<const Tensor> inputs, const Tensor& out) = 0;
  virtual void widen(const Tensor& in, const Tensor& out) = 0;
  virtual void widen_add(const Tensor& in, const Tensor& out) = 0;
  virtual void narrow(const Tensor& in, const Tensor& out) = 0;
  // At most kernels::kMostNodes values, of which kernels::kMostLeft are left.
  virtual void fold(TreeFold& fold, std::span<const Tensor> values,
                    std::span<const Tensor> out) = 0;

  // flag (one int32) = 1 if an element is infinite or no number; else it stays.
  virtual void mark_not_finite(const Tensor& values, const Tensor& flag) = 0;
  // The same of the chunks of a chunk_table() alone: padding may hold anything.
  virtual void mark_chunks_not_finite(const Tensor& values, const Tensor& chunks,
                                      const Tensor& flag) = 0;
  // This rank's vote on a step becomes its word (one int64): for it, unless not_finite
  // is set. None is cast where `hindered` (one bool) says so, or `stop` (one int32 of
  // the host, read when the kernel runs; or undefined) is not 0.
  virtual void cast_vote(const Tensor& numbers, const Tensor& hindered,
                         const Tensor& stop, const Tensor& word) = 0;
  // Opens the gate if the words of all ranks are votes for this step, else closes it.
  virtual void count_votes(const Tensor& words, const Tensor& numbers) = 0;

  // sums[slot] = the sum of squares of each chunk, float64 (optim/gradient_norm.h).
  // `chunks`: chunk_table() of chunks that lie in `values`.
  virtual void square_sums(const Tensor& values, const Tensor& chunks,
                           const Tensor& sums) = 0;
  // From the sums of all chunks: numbers.norm = that of the mean gradient, grad_scale =
  // mean_scale times clip_factor(norm, limit), not_finite = 1 if the norm is not.
  virtual void norm(const Tensor& sums, double limit, const Tensor& numbers) = 0;
  // totals[t] = add_chunks() of the rows of `sums` that tensor t has. `tensors`:
  // tensor_table(); both are float64 with the same number of columns.
  virtual void add_chunks(const Tensor& sums, const Tensor& tensors,
                          const Tensor& totals) = 0;

  // sum (one int64) += what the elements of `data` add to a weights hash, where element
  // k has the number first + k * stride (step/element_sum.h).
  virtual void sum_elements(const Tensor& data, int64_t first, int64_t stride,
                            uint64_t seed, const Tensor& sum) = 0;

  // What the clock of the device says then: `at` is one int64, nanoseconds.
  virtual void write_time(const Tensor& at) = 0;

  // For losses over tokens; null: operations of LibTorch do it.
  virtual LogitKernels* logits() { return nullptr; }

  virtual std::unique_ptr<ShardUpdate> make_shard_update(
      const ShardUpdateOptions& options) = 0;

  // Tables in the memory of the device, made once.
  Tensor chunk_table(std::span<const kernels::Chunk> chunks) const;
  Tensor tensor_table(std::span<const kernels::TensorChunks> tensors) const;

 protected:
  StateKernels() = default;
};

std::unique_ptr<StateKernels> make_host_kernels();

// ConfigError without CUDA, without such a GPU, or without NVRTC.
std::unique_ptr<StateKernels> make_cuda_kernels(int device = 0);

}  // namespace cohort
