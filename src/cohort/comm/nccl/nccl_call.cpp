// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_call.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "cohort/comm/nccl/reduction.h"
#include "cohort/comm/staging.h"

namespace cohort::nccl_backend {
namespace {

size_t count_of(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

std::vector<int64_t> equal_parts(const Tensor& tensor, int size) {
  return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
}

}  // namespace

void NcclCall::reduce_all(const Tensor& tensor, ReduceOp op) {
  if (sums_by_parts(tensor.scalar_type(), op, size_))
    return sum_all_by_parts(tensor, op);
  const Tensor data = prepared(tensor, op);
  void* const memory = data.mutable_data_ptr();
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.AllReduce(memory, memory, count_of(data), data_type(data.scalar_type()),
                          reduction_of(op), comm, stream_);
  });
  put(tensor, restored(data, tensor.scalar_type(), op, size_));
}

void NcclCall::reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) {
  if (sums_by_parts(in.scalar_type(), op, size_)) {
    const Tensor parts = at::empty({size_, out.numel()}, in.options());
    swap_equal(parts, contiguous_copy(in));
    return copy_into(out, sum_of_parts(parts, op));
  }
  const Tensor data = prepared(in, op);
  const bool direct = out.is_contiguous() && data.scalar_type() == out.scalar_type();
  const Tensor part = direct ? out.detach() : at::empty({out.numel()}, data.options());
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.ReduceScatter(data.const_data_ptr(), part.mutable_data_ptr(),
                              count_of(part), data_type(data.scalar_type()),
                              reduction_of(op), comm, stream_);
  });
  put(out, restored(part, out.scalar_type(), op, size_));
}

// As many bytes as a ring of NCCL moves, in the narrow type, yet rounded once: each
// rank gets its part from all, adds in float32, and gives the rounded sum to all.
void NcclCall::sum_all_by_parts(const Tensor& tensor, ReduceOp op) {
  const int64_t numel = tensor.numel(), part = (numel + size_ - 1) / size_;
  Tensor whole = contiguous_copy(tensor).detach().view({numel});
  if (part * size_ != numel) {
    const Tensor values = whole;
    whole = at::zeros({part * size_}, values.options());
    whole.narrow(0, 0, numel).copy_(values);
  }
  const Tensor parts = at::empty({size_, part}, whole.options());
  swap_equal(parts, whole);
  gather(whole, sum_of_parts(parts, op));
  put(tensor, whole.narrow(0, 0, numel));
}

void NcclCall::gather(const Tensor& out, const Tensor& in) {
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.AllGather(in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(),
                          kUint8, comm, stream_);
  });
}

void NcclCall::broadcast(const Tensor& tensor, int root) {
  void* const memory = tensor.mutable_data_ptr();
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.Broadcast(memory, memory, tensor.nbytes(), kUint8, root, comm, stream_);
  });
}

void NcclCall::swap_equal(const Tensor& out, const Tensor& in) {
  swap(out, in, {.sent = equal_parts(in, size_), .received = equal_parts(out, size_)});
}

// One kernel for all of them; also to this rank itself.
void NcclCall::transfer(const std::vector<Piece>& sent,
                        const std::vector<Piece>& received) {
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    Result result = nccl.GroupStart();
    const auto keep_first = [&](Result next) {
      if (result == kSuccess || result == kInProgress) result = next;
    };
    for (const auto& [data, bytes, peer] : sent)
      if (bytes > 0)
        keep_first(
            nccl.Send(data, static_cast<size_t>(bytes), kUint8, peer, comm, stream_));
    for (const auto& [data, bytes, peer] : received)
      if (bytes > 0)
        keep_first(
            nccl.Recv(data, static_cast<size_t>(bytes), kUint8, peer, comm, stream_));
    keep_first(nccl.GroupEnd());
    return result;
  });
}

}  // namespace cohort::nccl_backend
