// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/gloo_communicator.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <exception>

#include "cohort/comm/arguments.h"
#include "cohort/comm/gloo/ordered.h"
#include "cohort/comm/shared_memory/reduce.h"
#include "cohort/comm/staging.h"
#include "cohort/core/error.h"

namespace cohort::gloo_backend {
namespace {

constexpr std::chrono::milliseconds kFarewell{500};

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;  // a mean is divided afterwards
  }
}

// The bytes of a contiguous tensor: what is only moved needs no dtype.
Tensor bytes_in(const Tensor& tensor) {
  // With a stride of 1 also where there is but one element, or none.
  return at::as_strided(tensor.detach(), {tensor.numel()}, {1}).view(at::kByte);
}

// A contiguous tensor for what arrives, and how it gets from there to the caller's.
struct Target {
  Tensor data;
  std::function<void()> finish;
};

Target target_for(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {tensor.detach(), {}};
  Tensor copy = contiguous_copy(tensor);
  return {copy, [tensor, copy] { copy_into(tensor, copy); }};
}

// What a NaN is among integers of the same order.
template <typename Integer>
Integer nan_key(ReduceOp op) {
  using Limits = std::numeric_limits<Integer>;
  return op == ReduceOp::kMax ? Limits::max() : Limits::min();
}

std::vector<int64_t> bytes_for(const std::vector<int64_t>& counts, const Tensor& like) {
  std::vector<int64_t> bytes;
  for (const int64_t count : counts) bytes.push_back(count * like.element_size());
  return bytes;
}

bool is_half(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

// What gloo reduces for `tensor`, and how the caller's gets its values from that.
// Half types are accumulated in float32 and rounded once, a NaN wins, and a mean is
// divided once, at the end: as in shared_memory/reduce.h.
Target reduction_of(const Tensor& tensor, ReduceOp op, int size) {
  Target target = is_half(tensor.scalar_type())
                      ? Target{contiguous_copy(tensor.detach()).to(at::kFloat), {}}
                      : target_for(tensor);
  Tensor data = target.data;
  auto write = std::move(target.finish);
  if (is_half(tensor.scalar_type())) write = [=] { copy_into(tensor, data); };
  if (op == ReduceOp::kMean) {
    return {data, [=]() mutable {
              const at::AutoDispatchBelowADInplaceOrView unrecorded;
              data.div_(size);
              if (write) write();
            }};
  }
  if (op == ReduceOp::kSum || !at::isFloatingType(data.scalar_type())) {
    return {data, std::move(write)};
  }
  const bool wide = data.scalar_type() == at::kDouble;
  const int64_t numel = data.numel();
  wide ? to_ordered<double>(data.mutable_data_ptr(), numel, nan_key<int64_t>(op))
       : to_ordered<float>(data.mutable_data_ptr(), numel, nan_key<int32_t>(op));
  return {data.view(wide ? at::kLong : at::kInt), [=] {
            wide ? from_ordered<int64_t>(data.mutable_data_ptr(), numel)
                 : from_ordered<int32_t>(data.mutable_data_ptr(), numel);
            if (write) write();
          }};
}

// One part from many, in rank order: what ranks that share memory get, to the bit.
void reduce_parts(const Tensor& parts, ReduceOp op, const Tensor& out) {
  std::vector<const std::byte*> inputs;
  const auto* data = static_cast<const std::byte*>(parts.const_data_ptr());
  for (int64_t r = 0; r < parts.size(0); ++r)
    inputs.push_back(data + r * out.numel() * out.element_size());
  const Tensor result = out.is_contiguous() ? out : contiguous_like(out);
  std::byte* const outputs[] = {static_cast<std::byte*>(result.mutable_data_ptr())};
  shared_memory::reduce(out.scalar_type(), op, inputs, outputs, out.numel());
  if (!out.is_contiguous()) copy_into(out, result);
}

}  // namespace

GlooCommunicator::GlooCommunicator(std::shared_ptr<State> state, Store& store,
                                   const GroupOptions& options, int generation)
    : state_(std::move(state)),
      store_(store),
      options_(options),
      generation_(generation) {}

GlooCommunicator::~GlooCommunicator() {
  if (size() == 1 || state_->broken() || std::uncaught_exceptions() > 0) return;
  try {
    c10d::BarrierOptions farewell;
    farewell.timeout = std::min(kFarewell, options_.timeout);
    state_
        ->start(state_->begin({.op = "farewell"}),
                [&](c10d::Backend& group) { return group.barrier(farewell); })
        ->wait();
  } catch (const std::exception&) {
    // They have left before us, or will after.
  }
}

Work GlooCommunicator::run(const Record& record,
                           const std::function<C10dWork(c10d::Backend&)>& call,
                           Finish finish) {
  auto work = state_->start(record, call);
  return Work(std::make_unique<CollectiveOperation>(state_, record, std::move(work),
                                                    std::move(finish)));
}

Work GlooCommunicator::all_reduce(Tensor& tensor, ReduceOp op) {
  check_all_reduce(*this, tensor, op);
  const Record record = state_->begin({.op = "all_reduce",
                                       .dtype = tensor.scalar_type(),
                                       .numel = tensor.numel(),
                                       .reduce = name_of(op)});
  if (tensor.numel() == 0) return {};
  Target target = reduction_of(tensor, op, size());
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  return run(
      record,
      [&](c10d::Backend& group) {
        std::vector<Tensor> tensors{target.data};
        return group.allreduce(tensors, options);
      },
      std::move(target.finish));
}

// Half the traffic of an all_reduce: every rank gets the parts it has to reduce.
Work GlooCommunicator::reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) {
  check_reduce_scatter(*this, out, in, op);
  const Record record = state_->begin({.op = "reduce_scatter",
                                       .dtype = in.scalar_type(),
                                       .numel = out.numel(),
                                       .reduce = name_of(op)});
  if (in.numel() == 0) return {};
  const Tensor source = contiguous_copy(in).detach();
  Tensor parts = at::empty({size(), out.numel()}, source.options());
  return run(
      record,
      [&](c10d::Backend& group) {
        std::vector<int64_t> equal;
        Tensor to = bytes_in(parts), from = bytes_in(source);
        return group.alltoall_base(to, from, equal, equal);
      },
      [parts, op, out] { reduce_parts(parts, op, out); });
}

Work GlooCommunicator::all_gather(Tensor& out, const Tensor& shard) {
  check_all_gather(*this, out, shard);
  const Record record = state_->begin(
      {.op = "all_gather", .dtype = shard.scalar_type(), .numel = shard.numel()});
  if (shard.numel() == 0) return {};
  Target target = target_for(out);
  const Tensor source = contiguous_copy(shard);
  return run(
      record,
      [&](c10d::Backend& group) {
        Tensor to = bytes_in(target.data), from = bytes_in(source);
        return group._allgather_base(to, from);
      },
      std::move(target.finish));
}

Work GlooCommunicator::broadcast(Tensor& tensor, int root) {
  check_broadcast(*this, tensor, root);
  const Record record = state_->begin({.op = "broadcast",
                                       .dtype = tensor.scalar_type(),
                                       .numel = tensor.numel(),
                                       .root = root});
  if (tensor.numel() == 0) return {};
  Target target = target_for(tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return run(
      record,
      [&](c10d::Backend& group) {
        std::vector<Tensor> tensors{bytes_in(target.data)};
        return group.broadcast(tensors, options);
      },
      root == rank() ? Finish{} : std::move(target.finish));
}

Work GlooCommunicator::all_to_all(Tensor& out, const Tensor& in,
                                  std::span<const int64_t> out_rows,
                                  std::span<const int64_t> in_rows) {
  const Parts parts = check_all_to_all(*this, out, in, out_rows, in_rows);
  auto out_bytes = bytes_for(parts.received, out), in_bytes = bytes_for(parts.sent, in);
  const Record record = state_->begin({.op = "all_to_all", .dtype = in.scalar_type()});
  Target target = target_for(out);
  const Tensor source = contiguous_copy(in);
  return run(
      record,
      [&](c10d::Backend& group) {
        Tensor to = bytes_in(target.data), from = bytes_in(source);
        return group.alltoall_base(to, from, out_bytes, in_bytes);
      },
      [source, finish = std::move(target.finish)] {
        if (finish) finish();
      });
}

// Gloo has no connection of a rank to itself: the k-th send meets the k-th receive.
void GlooCommunicator::copy_to_self(std::span<const Transfer> sends,
                                    std::span<const Transfer> receives) {
  size_t next = 0;
  for (const Transfer& send : sends) {
    if (send.peer != rank()) continue;
    while (receives[next].peer != rank()) ++next;
    copy_into(receives[next++].tensor, contiguous_copy(send.tensor));
  }
}

Work GlooCommunicator::exchange(std::span<const Transfer> sends,
                                std::span<const Transfer> receives) {
  check_exchange(*this, sends, receives);
  const Record record = state_->begin({.op = "exchange"});
  copy_to_self(sends, receives);
  std::vector<C10dWork> works;
  std::vector<Finish> finishes;
  state_->start(record, [&](c10d::Backend& group) {
    for (const Transfer& receive : receives) {
      if (receive.peer == rank() || receive.tensor.numel() == 0) continue;
      Target target = target_for(receive.tensor);
      std::vector<Tensor> tensors{bytes_in(target.data)};
      const int tag = message_tag(tensors[0].numel(), target.data.scalar_type());
      works.push_back(group.recv(tensors, receive.peer, tag));
      if (target.finish) finishes.push_back(std::move(target.finish));
    }
    for (const Transfer& send : sends) {
      if (send.peer == rank() || send.tensor.numel() == 0) continue;
      std::vector<Tensor> tensors{bytes_in(contiguous_copy(send.tensor))};
      const int tag = message_tag(tensors[0].numel(), send.tensor.scalar_type());
      works.push_back(group.send(tensors, send.peer, tag));
    }
  });
  if (works.empty()) return {};
  return Work(std::make_unique<ExchangeOperation>(
      state_, record, std::move(works), [finishes = std::move(finishes)] {
        for (const Finish& finish : finishes) finish();
      }));
}

Work GlooCommunicator::barrier() {
  return run(state_->begin({.op = "barrier"}),
             [](c10d::Backend& group) { return group.barrier(); });
}

std::unique_ptr<Communicator> GlooCommunicator::split(int color) {
  const Tensor mine = at::full({1}, color, at::kLong);
  Tensor all = at::empty({size()}, at::kLong);
  all_gather(all, mine).wait();
  const int split = num_splits_++;
  if (color < 0) return nullptr;
  GroupOptions options = options_;
  options.rank = options.size = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (all.const_data_ptr<int64_t>()[peer] != color) continue;
    if (peer < rank()) ++options.rank;
    ++options.size;
  }
  options.prefix = text(options_.prefix, "split/", split, "/", color, "/");
  return make_group(store_, options, generation_);
}

Tensor GlooCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                  at::Device device) {
  check_allocate(*this, shape, dtype, device);
  return at::zeros(shape, dtype);
}

void GlooCommunicator::abort(std::string_view reason) {
  state_->abort(std::string(reason));
}

}  // namespace cohort::gloo_backend
