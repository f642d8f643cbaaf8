// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/tensor.h"
#include "cohort/work.h"

namespace [[gnu::visibility("default")]] cohort {

enum class ReduceOp { kSum, kMean, kMax, kMin };

// One side of a grouped exchange: `tensor` goes to, or comes from, `peer`.
struct Transfer {
  int peer;
  Tensor tensor;
};

// A fixed group of ranks that exchange tensors.
//
// All ranks call the same collectives in the same order, with tensors of equal
// dtype and number of elements. A call starts the operation and returns; the
// tensors belong to it until Work::wait() returns. Several may be in flight; they
// finish in the order they were started.
//
// Order between groups is free: wait() and poll() also move what the same thread has
// outstanding in all other groups of the same world (made by split(), at any depth). So
// ranks may start calls in several groups and wait for them in any order, each in its
// own; but a rank must not wait for a call before it has started those that others
// wait for.
//
// Tensors are on the CPU, or, where takes_cuda(), all those of a call on one GPU; of
// dtype float64, float32, float16, bfloat16, int64, int32 or uint8; they may be
// non-contiguous, empty, or leaves that require a gradient, and are written as memory
// is, unrecorded. Memory that is written must not overlap other tensors of the call,
// but as stated below.
//
// Reductions are the same with every backend, but for the order in which float32 and
// float64 are added. float16 and bfloat16 are accumulated in float32 and rounded once;
// a mean (of floating types only) is divided once, at the end, and overflows where the
// sum does in the type it is accumulated in; a NaN wins in all of them; integers wrap.
//
// Failure: what no call may be given is refused with ConfigError before anything
// happens; the group stays as it was, also when only one rank was refused. wait() (or a
// later call) throws CommError if a peer is lost, is late by more than the group's
// timeout, or calls another collective. The group is then broken for good: build a new
// one. Its siblings are not, but parts may break with their world. No peer writes to
// this rank's tensors once it has that error, unless it was stopped in the middle of it
// for longer than the timeout: then what it may still write to is not used for anything
// else before it is done or gone. The contents of tensors in flight are lost.
//
// Thread safety: one thread at a time, but for abort(), which any thread may call.
// Different threads may use different groups of one world at the same time; a wait
// moves only groups that its own thread was the last to use.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual std::string_view backend() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Counts up each time the world is built anew; nothing crosses generations.
  virtual int generation() const = 0;

  // Whether tensors of this rank's GPU may be given, too. Their operations are part of
  // the lane (CUDA stream) that is current at the call.
  virtual bool takes_cuda() const { return false; }
  // Whether such calls may be captured. Then all ranks capture, and replay, alike.
  virtual bool is_capturable() const { return false; }
  // One int32 of the host that kernels of the GPU may read: 0 until this group, or one
  // made of the same world, is aborted; it changes before any work on a GPU ends early.
  // Undefined where tensors of a GPU are not taken. Collective.
  virtual Tensor stop_word() { return {}; }

  // Replaces `tensor` on every rank by its reduction over the group.
  virtual Work all_reduce(Tensor& tensor, ReduceOp op) = 0;

  // Reduces `in` (size() equal parts along its elements) and leaves part rank()
  // in `out`, which may be that part of `in`.
  virtual Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) = 0;

  // Fills `out` with every rank's `shard`, in rank order; `shard` may be its part of
  // `out`.
  virtual Work all_gather(Tensor& out, const Tensor& shard) = 0;

  // Replaces `tensor` on every rank by that of `root`.
  virtual Work broadcast(Tensor& tensor, int root) = 0;

  // Sends part i of `in` to rank i and fills part i of `out` from rank i. Parts
  // are equal, or given as numbers of rows along dim 0 (one entry per rank). A scalar
  // is one row.
  virtual Work all_to_all(Tensor& out, const Tensor& in,
                          std::span<const int64_t> out_rows = {},
                          std::span<const int64_t> in_rows = {}) = 0;

  // Starts all sends and receives at once; order between two ranks is kept.
  // Sends are unbuffered: none may finish before its receive is posted. Only the
  // ranks named take part. What a rank sends to itself it receives in the same call.
  virtual Work exchange(std::span<const Transfer> sends,
                        std::span<const Transfer> receives) = 0;

  // Finishes when every rank has called it.
  virtual Work barrier() = 0;

  // Finishes when all that the calling thread's current lane was given so far is done,
  // joined calls and other work. Sends nothing; a rank may call it without the others.
  // wait() throws where peers are lost, and has a deadline: ten times that of a call.
  // Finished already where there is no lane.
  virtual Work so_far() { return {}; }

  // Collective. Ranks that pass the same `color` form a new group, in their order
  // here. A negative color joins none and gets a null pointer.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // Memory this backend is fastest with, zeroed; freed with the last reference.
  // It may outlive the communicator. ConfigError for a device whose tensors it does not
  // take.
  virtual Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                          at::Device device = at::kCPU) = 0;

  // Breaks the group on this rank, and as far as the backend can on its peers:
  // pending and later waits throw CommError with `reason`.
  virtual void abort(std::string_view reason) = 0;

 protected:
  Communicator() = default;
};

}  // namespace cohort
