// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/comm/work.h"
#include "cohort/core/tensor.h"

namespace cohort {

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
// finish in the order they were started. Tensors may be non-contiguous or empty.
// dtypes: float64, float32, float16, bfloat16, int64, int32, uint8; kMean is for
// floating types.
//
// Failure: wait() (or a later call) throws CommError if a peer is lost, is late by
// more than the group's timeout, or calls another collective. The group is then
// broken for good: build a new one.
//
// Thread safety: none, but for abort(), which any thread may call.
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

  // Replaces `tensor` on every rank by its reduction over the group.
  virtual Work all_reduce(Tensor& tensor, ReduceOp op) = 0;

  // Reduces `in` (size() equal parts along its elements) and leaves part rank()
  // in `out`.
  virtual Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) = 0;

  // Fills `out` with every rank's `shard`, in rank order.
  virtual Work all_gather(Tensor& out, const Tensor& shard) = 0;

  // Replaces `tensor` on every rank by that of `root`.
  virtual Work broadcast(Tensor& tensor, int root) = 0;

  // Sends part i of `in` to rank i and fills part i of `out` from rank i. Parts
  // are equal, or given as numbers of rows along dim 0 (one entry a rank).
  virtual Work all_to_all(Tensor& out, const Tensor& in,
                          std::span<const int64_t> out_rows = {},
                          std::span<const int64_t> in_rows = {}) = 0;

  // Starts all sends and receives at once; order between two ranks is kept.
  // Sends are unbuffered: none may finish before its receive is posted. Only the
  // ranks named take part.
  virtual Work exchange(std::span<const Transfer> sends,
                        std::span<const Transfer> receives) = 0;

  // Finishes when every rank has called it.
  virtual Work barrier() = 0;

  // Collective. Ranks that pass the same `color` form a new group, in their order
  // here. A negative color joins none and gets a null pointer.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  // Memory this backend is fastest with, zeroed; freed with the last reference.
  // It may outlive the communicator.
  virtual Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype) = 0;

  // Breaks the group on this rank, and as far as the backend can on its peers:
  // pending and later waits throw CommError with `reason`.
  virtual void abort(std::string_view reason) = 0;

 protected:
  Communicator() = default;
};

}  // namespace cohort
