// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/window/window_call.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "cohort/comm/device/reduce_parts.h"
#include "cohort/comm/staging.h"

namespace cohort::window_backend {
namespace {

Tensor flat_bytes(const Tensor& contiguous) {
  return contiguous.detach().view({contiguous.numel()}).view(at::kByte);
}

}  // namespace

Tensor WindowCall::memory_at(const void* data, at::IntArrayRef shape,
                             at::ScalarType dtype) const {
  return at::for_blob(const_cast<void*>(data), shape)
      .options(at::TensorOptions().dtype(dtype).device(group_.device()))
      .target_device(group_.device())
      .make_tensor();
}

// A post is one round ahead of the reads: while a rank reads one half, its peers have
// the other.
void WindowCall::in_rounds(
    int64_t elements, int64_t each,
    const std::function<void(const Round&, std::byte*)>& fill,
    const std::function<void(const Round&, const Halves&)>& take) {
  const int64_t rounds = (elements + each - 1) / each;
  const auto round = [&](int64_t k) {
    return Round{k * each, std::min(each, elements - k * each)};
  };
  for (int64_t k = 0; k <= rounds; ++k) {
    group_.check(what_);
    if (k < rounds) {
      fill(round(k), group_.begin_post(kAll));
      group_.end_post(kAll);
    }
    if (k == 0) continue;
    take(round(k - 1), group_.begin_reads());
    group_.end_reads();
  }
}

void WindowCall::reduce_all(const Tensor& tensor, ReduceOp op) {
  if (group_.size() == 1) return;
  const Tensor flat = contiguous_copy(tensor).detach().view({tensor.numel()});
  const auto part = [&](const Round& round) {
    return flat.narrow(0, round.begin, round.length);
  };
  in_rounds(
      flat.numel(), group_.room(kAll) / flat.element_size(),
      [&](const Round& round, std::byte* half) {
        memory_at(half, {round.length}, flat.scalar_type()).copy_(part(round));
      },
      [&](const Round& round, const Halves& halves) {
        std::vector<Tensor> parts;
        for (const std::byte* half : halves)
          parts.push_back(memory_at(half, {round.length}, flat.scalar_type()));
        device_comm::reduce_parts(part(round), parts, op);
      });
  put(tensor, flat);
}

// A half holds the same stretch of each rank's part.
void WindowCall::reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) {
  const int64_t n = group_.size();
  const Tensor place = place_for(out).view({out.numel()});
  const Tensor rows = contiguous_copy(in).detach().view({n, out.numel()});
  const auto dtype = in.scalar_type();
  if (n == 1) return put(out, rows[0]);
  in_rounds(
      out.numel(), group_.room(kAll) / in.element_size() / n,
      [&](const Round& round, std::byte* half) {
        memory_at(half, {n, round.length}, dtype)
            .copy_(rows.narrow(1, round.begin, round.length));
      },
      [&](const Round& round, const Halves& halves) {
        std::vector<Tensor> parts;
        for (const std::byte* half : halves)
          parts.push_back(memory_at(half, {n, round.length}, dtype)[group_.rank()]);
        device_comm::reduce_parts(place.narrow(0, round.begin, round.length), parts,
                                  op);
      });
  put(out, place);
}

void WindowCall::gather(const Tensor& out, const Tensor& in) {
  const Tensor from = flat_bytes(in);
  const Tensor rows = flat_bytes(out).view({group_.size(), from.numel()});
  put(rows[group_.rank()], from);
  if (group_.size() == 1) return;
  in_rounds(
      from.numel(), group_.room(kAll),
      [&](const Round& round, std::byte* half) {
        memory_at(half, {round.length}, at::kByte)
            .copy_(from.narrow(0, round.begin, round.length));
      },
      [&](const Round& round, const Halves& halves) {
        for (int r = 0; r < group_.size(); ++r) {
          if (r == group_.rank()) continue;
          rows[r]
              .narrow(0, round.begin, round.length)
              .copy_(memory_at(halves[r], {round.length}, at::kByte));
        }
      });
}

void WindowCall::broadcast(const Tensor& tensor, int root) {
  if (group_.size() == 1) return;
  for (const Tensor& chunk : flat_bytes(tensor).split(group_.room(kAll))) {
    group_.check(what_);
    if (root == group_.rank()) {
      memory_at(group_.begin_post(kAll), chunk.sizes(), at::kByte).copy_(chunk);
      group_.end_post(kAll);
      group_.begin_read(root, kAll);  // it counts, as with every other post to all
    } else {
      chunk.copy_(memory_at(group_.begin_read(root, kAll), chunk.sizes(), at::kByte));
    }
    group_.end_read(root, kAll);
  }
}

WindowCall::Chunks WindowCall::cut(const std::vector<Piece>& pieces) const {
  Chunks chunks(static_cast<size_t>(group_.size()));
  for (const auto& [data, bytes, peer] : pieces) {
    if (bytes == 0) continue;
    const auto all = memory_at(data, {bytes}, at::kByte).split(group_.room(peer));
    auto& list = chunks[static_cast<size_t>(peer)];
    list.insert(list.end(), all.begin(), all.end());
  }
  return chunks;
}

void WindowCall::post_to(int peer, const Tensor& bytes) {
  memory_at(group_.begin_post(peer), bytes.sizes(), at::kByte).copy_(bytes);
  group_.end_post(peer);
}

void WindowCall::read_from(int peer, const Tensor& bytes) {
  const std::byte* const half = group_.begin_read(peer, group_.rank());
  bytes.copy_(memory_at(half, bytes.sizes(), at::kByte));
  group_.end_read(peer, group_.rank());
}

void WindowCall::transfer(const std::vector<Piece>& sent,
                          const std::vector<Piece>& received) {
  Chunks out = cut(sent), in = cut(received);
  auto &to_self = out[group_.rank()], &from_self = in[group_.rank()];
  for (size_t i = 0; i < from_self.size(); ++i) from_self[i].copy_(to_self[i]);
  to_self.clear();
  from_self.clear();
  size_t rounds = 0;
  for (const Chunks* chunks : {&out, &in})
    for (const auto& list : *chunks) rounds = std::max(rounds, list.size());
  for (size_t k = 0; k <= rounds; ++k) {
    group_.check(what_);
    for (int r = 0; r < group_.size(); ++r)
      if (k < out[r].size()) post_to(r, out[r][k]);
    for (int r = 0; r < group_.size(); ++r)
      if (k > 0 && k - 1 < in[r].size()) read_from(r, in[r][k - 1]);
  }
}

}  // namespace cohort::window_backend
