// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/device_call.h"

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

// Where the values of `tensor` can be put one after another: itself, or other memory.
Tensor place_for(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor.detach() : contiguous_like(tensor);
}

void put(const Tensor& to, const Tensor& values) {
  if (to.const_data_ptr() != values.const_data_ptr()) copy_into(to, values);
}

}  // namespace

void DeviceCall::reduce_all(const Tensor& tensor, ReduceOp op) {
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

void DeviceCall::reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) {
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
void DeviceCall::sum_all_by_parts(const Tensor& tensor, ReduceOp op) {
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

void DeviceCall::gather(const Tensor& out, const Tensor& in) {
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.AllGather(in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(),
                          kUint8, comm, stream_);
  });
}

void DeviceCall::broadcast(const Tensor& tensor, int root) {
  void* const memory = tensor.mutable_data_ptr();
  group_.start(what_, [&](const Library& nccl, Handle comm) {
    return nccl.Broadcast(memory, memory, tensor.nbytes(), kUint8, root, comm, stream_);
  });
}

void DeviceCall::swap_equal(const Tensor& out, const Tensor& in) {
  swap(out, in, {.sent = equal_parts(in, size_), .received = equal_parts(out, size_)});
}

void DeviceCall::swap(const Tensor& out, const Tensor& in, const Parts& parts) {
  const auto pieces = [](const Tensor& tensor, const std::vector<int64_t>& counts) {
    std::vector<Piece> all;
    auto* at = static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
    for (size_t peer = 0; peer < counts.size(); ++peer) {
      const int64_t bytes = counts[peer] * tensor.element_size();
      all.push_back({at, bytes, static_cast<int>(peer)});
      at += bytes;
    }
    return all;
  };
  transfer(pieces(in, parts.sent), pieces(out, parts.received));
}

void DeviceCall::exchange(std::span<const Transfer> sends,
                          std::span<const Transfer> receives) {
  std::vector<Tensor> sources, places;
  std::vector<Piece> sent, received;
  const auto add = [](std::vector<Piece>& pieces, int peer, const Tensor& tensor) {
    pieces.push_back({const_cast<void*>(tensor.const_data_ptr()),
                      static_cast<int64_t>(tensor.nbytes()), peer});
  };
  for (const auto& [peer, tensor] : sends) {
    sources.push_back(contiguous_copy(tensor));
    add(sent, peer, sources.back());
  }
  for (const auto& [peer, tensor] : receives) {
    places.push_back(place_for(tensor));
    add(received, peer, places.back());
  }
  transfer(sent, received);
  for (size_t i = 0; i < receives.size(); ++i)
    if (receives[i].tensor.numel() > 0) put(receives[i].tensor, places[i]);
}

// One kernel for all of them; also to this rank itself.
void DeviceCall::transfer(const std::vector<Piece>& sent,
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
