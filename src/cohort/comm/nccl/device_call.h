// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/comm/arguments.h"
#include "cohort/comm/nccl/nccl_group.h"

namespace cohort::nccl_backend {

// What one call of a communicator asks of NCCL, in one lane. Tensors are on the device
// and, but where it is said, contiguous; what is only moved goes as bytes.
class DeviceCall {
 public:
  DeviceCall(NcclGroup& group, std::string what, Stream stream, int size)
      : group_(group), what_(std::move(what)), stream_(stream), size_(size) {}

  // Any layout. `out` may be this rank's part of `in`.
  void reduce_all(const Tensor& tensor, ReduceOp op);
  void reduce_part(const Tensor& out, const Tensor& in, ReduceOp op);

  // `in` may be this rank's part of `out`.
  void gather(const Tensor& out, const Tensor& in);
  void broadcast(const Tensor& tensor, int root);
  // Numbers of elements.
  void swap(const Tensor& out, const Tensor& in, const Parts& parts);
  // Any layout. Empty ones are left out.
  void exchange(std::span<const Transfer> sends, std::span<const Transfer> receives);

 private:
  struct Piece {
    void* data;
    int64_t bytes;
    int peer;
  };

  void sum_all_by_parts(const Tensor& tensor, ReduceOp op);
  void swap_equal(const Tensor& out, const Tensor& in);
  void transfer(const std::vector<Piece>& sent, const std::vector<Piece>& received);

  NcclGroup& group_;
  std::string what_;
  Stream stream_;
  int size_;
};

}  // namespace cohort::nccl_backend
