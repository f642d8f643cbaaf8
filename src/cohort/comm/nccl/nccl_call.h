// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/comm/device/device_call.h"
#include "cohort/comm/nccl/nccl_group.h"

namespace cohort::nccl_backend {

// What one call of a communicator asks of NCCL.
class NcclCall final : public device_comm::DeviceCall {
 public:
  NcclCall(NcclGroup& group, std::string what, Stream stream, int size)
      : group_(group), what_(std::move(what)), stream_(stream), size_(size) {}

  void reduce_all(const Tensor& tensor, ReduceOp op) override;
  void reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) override;
  void gather(const Tensor& out, const Tensor& in) override;
  void broadcast(const Tensor& tensor, int root) override;

 private:
  void transfer(const std::vector<Piece>& sent,
                const std::vector<Piece>& received) override;
  void sum_all_by_parts(const Tensor& tensor, ReduceOp op);
  void swap_equal(const Tensor& out, const Tensor& in);

  NcclGroup& group_;
  std::string what_;
  Stream stream_;
  int size_;
};

}  // namespace cohort::nccl_backend
