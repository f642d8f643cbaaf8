// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/relay_call.h"

#include <ATen/ops/from_blob.h>

#include "cohort/comm/staging.h"

namespace cohort::relay_backend {
namespace {

Tensor on_host(std::byte* at, int64_t numel, at::ScalarType dtype) {
  return at::from_blob(at, {numel}, at::TensorOptions().dtype(dtype));
}

// Where each piece of a transfer lies in memory of the host.
struct PlacedPiece {
  void* data;
  int64_t bytes;
  int peer;
  int64_t begin;
};

std::vector<Transfer> transfers_at(std::byte* at,
                                   const std::vector<PlacedPiece>& pieces) {
  std::vector<Transfer> all;
  for (const auto& [data, bytes, peer, begin] : pieces)
    all.push_back({peer, on_host(at + begin, bytes, at::kByte)});
  return all;
}

}  // namespace

void RelayCall::pass(RelayGroup::Passage passage) {
  group_.check(what_);
  group_.pass(lane_, passage);
}

void RelayCall::reduce_all(const Tensor& tensor, ReduceOp op) {
  const Tensor data = contiguous_copy(tensor).detach();
  const auto bytes = data.nbytes();
  pass({.bytes = bytes,
        .fill =
            [&](std::byte* at) {
              group_.driver().to_host(at, data.const_data_ptr(), bytes);
            },
        .call =
            [numel = data.numel(), dtype = data.scalar_type(), op](Communicator& comm,
                                                                   std::byte* at) {
              Tensor sum = on_host(at, numel, dtype);
              return comm.all_reduce(sum, op);
            },
        .take =
            [&](const std::byte* at) {
              group_.driver().to_device(data.mutable_data_ptr(), at, bytes);
            }});
  put(tensor, data);
}

void RelayCall::reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) {
  const Tensor data = contiguous_copy(in).detach();
  const Tensor place = place_for(out);
  const auto part = out.nbytes(), mine = part * static_cast<size_t>(group_.rank());
  pass({.bytes = data.nbytes(),
        .fill =
            [&](std::byte* at) {
              group_.driver().to_host(at, data.const_data_ptr(), data.nbytes());
            },
        .call =
            [numel = out.numel(), dtype = in.scalar_type(), op](Communicator& comm,
                                                                std::byte* at) {
              const Tensor whole = on_host(at, numel * comm.size(), dtype);
              Tensor sum = whole.narrow(0, numel * comm.rank(), numel);
              return comm.reduce_scatter(sum, whole, op);
            },
        .take =
            [&](const std::byte* at) {
              group_.driver().to_device(place.mutable_data_ptr(), at + mine, part);
            }});
  put(out, place);
}

void RelayCall::gather(const Tensor& out, const Tensor& in) {
  const auto part = in.nbytes(), mine = part * static_cast<size_t>(group_.rank());
  pass({.bytes = out.nbytes(),
        .fill =
            [&](std::byte* at) {
              group_.driver().to_host(at + mine, in.const_data_ptr(), part);
            },
        .call =
            [part = static_cast<int64_t>(part)](Communicator& comm, std::byte* at) {
              Tensor whole = on_host(at, part * comm.size(), at::kByte);
              return comm.all_gather(whole, whole.narrow(0, part * comm.rank(), part));
            },
        .take =
            [&](const std::byte* at) {
              group_.driver().to_device(out.mutable_data_ptr(), at, out.nbytes());
            }});
}

void RelayCall::broadcast(const Tensor& tensor, int root) {
  const auto bytes = tensor.nbytes();
  const bool tells = root == group_.rank();
  pass({.bytes = bytes,
        .fill =
            [&](std::byte* at) {
              if (tells) group_.driver().to_host(at, tensor.const_data_ptr(), bytes);
            },
        .call =
            [bytes = static_cast<int64_t>(bytes), root](Communicator& comm,
                                                        std::byte* at) {
              Tensor told = on_host(at, bytes, at::kByte);
              return comm.broadcast(told, root);
            },
        .take =
            [&](const std::byte* at) {
              if (!tells)
                group_.driver().to_device(tensor.mutable_data_ptr(), at, bytes);
            }});
}

void RelayCall::transfer(const std::vector<Piece>& sent,
                         const std::vector<Piece>& received) {
  int64_t end = 0;
  const auto place = [&](const std::vector<Piece>& pieces) {
    std::vector<PlacedPiece> placed;
    for (const auto& [data, bytes, peer] : pieces) {
      if (bytes == 0) continue;
      placed.push_back({data, bytes, peer, end});
      end += bytes;
    }
    return placed;
  };
  const auto sends = place(sent), receives = place(received);
  pass({.bytes = static_cast<size_t>(end),
        .fill =
            [&](std::byte* at) {
              for (const auto& [data, bytes, peer, begin] : sends)
                group_.driver().to_host(at + begin, data, static_cast<size_t>(bytes));
            },
        .call =
            [sends, receives](Communicator& comm, std::byte* at) {
              return comm.exchange(transfers_at(at, sends), transfers_at(at, receives));
            },
        .take =
            [&](const std::byte* at) {
              for (const auto& [data, bytes, peer, begin] : receives)
                group_.driver().to_device(data, at + begin, static_cast<size_t>(bytes));
            }});
}

}  // namespace cohort::relay_backend
