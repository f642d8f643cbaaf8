// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/communicator.h"

#include <ATen/ATen.h>

#include <exception>
#include <numeric>

#include "cohort/comm/dtype.h"
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
  return tensor.detach().view({-1}).view(at::kByte);
}

// A contiguous tensor for what arrives, and how it gets from there to the caller's.
struct Target {
  Tensor data;
  std::function<void()> finish;
};

Target target_for(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {tensor.detach(), {}};
  Tensor copy = tensor.detach().contiguous();
  return {copy, [caller = tensor.detach(), copy] { caller.copy_(copy); }};
}

[[noreturn]] void refuse(const char* op, const std::string& what) {
  throw ConfigError(text("[comm.gloo] ", op, ": ", what));
}

void check_tensor(const char* op, const Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu()) {
    refuse(op, "a tensor is undefined or not on the CPU; legal are CPU tensors");
  }
  if (dtype_name(tensor.scalar_type()) == nullptr) {
    refuse(
        op,
        text("dtype ", c10::toString(tensor.scalar_type()),
             "; legal are float64, float32, float16, bfloat16, int64, int32, uint8"));
  }
}

void check_reduce(const char* op, const Tensor& tensor, ReduceOp reduce) {
  check_tensor(op, tensor);
  if (reduce == ReduceOp::kMean && !at::isFloatingType(tensor.scalar_type())) {
    refuse(op, text("mean of ", dtype_name(tensor.scalar_type()),
                    "; legal are floating types"));
  }
}

void check_parts(const char* op, const Tensor& whole, const Tensor& part, int size) {
  check_tensor(op, whole);
  check_tensor(op, part);
  if (whole.numel() != part.numel() * size ||
      whole.scalar_type() != part.scalar_type()) {
    refuse(op, text("the whole has ", whole.numel(), " elements of ",
                    dtype_name(whole.scalar_type()), ", a part ", part.numel(), " of ",
                    dtype_name(part.scalar_type()), "; legal is ", size,
                    " equal parts of one dtype"));
  }
}

// Bytes to or from each rank; empty for equal parts.
std::vector<int64_t> part_bytes(const Tensor& tensor, std::span<const int64_t> rows,
                                int size) {
  if (rows.empty()) {
    if (tensor.numel() % size == 0) return {};
    refuse("all_to_all", text(tensor.numel(), " elements for ", size,
                              " ranks; legal is a multiple, or rows for each rank"));
  }
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (static_cast<int>(rows.size()) != size || tensor.dim() == 0 ||
      total != tensor.size(0)) {
    refuse("all_to_all", text(rows.size(), " entries with ", total, " rows in all for ",
                              size, " ranks and ", tensor.dim() ? tensor.size(0) : 0,
                              " rows; legal is one entry a rank that sum to all rows"));
  }
  int64_t row_bytes = tensor.element_size();
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) row_bytes *= tensor.size(dim);
  std::vector<int64_t> bytes;
  for (int64_t count : rows) bytes.push_back(count * row_bytes);
  return bytes;
}

// One part from many, in rank order, in the accumulation type of the kernels.
Tensor reduce_parts(const Tensor& parts, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return at::amax(parts, 0);
    case ReduceOp::kMin:
      return at::amin(parts, 0);
    case ReduceOp::kMean:
      return at::mean(parts, 0);
    default:
      return at::sum(parts, 0, false, parts.scalar_type());
  }
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
  check_reduce("all_reduce", tensor, op);
  const Record record = state_->begin({.op = "all_reduce",
                                       .dtype = tensor.scalar_type(),
                                       .numel = tensor.numel(),
                                       .reduce = name_of(op)});
  if (tensor.numel() == 0) return {};
  Target target = target_for(tensor);
  if (op == ReduceOp::kMean) {
    target.finish = [data = target.data, size = size(),
                     finish = target.finish]() mutable {
      data.div_(size);
      if (finish) finish();
    };
  }
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
  check_reduce("reduce_scatter", in, op);
  check_parts("reduce_scatter", in, out, size());
  const Record record = state_->begin({.op = "reduce_scatter",
                                       .dtype = in.scalar_type(),
                                       .numel = out.numel(),
                                       .reduce = name_of(op)});
  if (in.numel() == 0) return {};
  const Tensor source = in.detach().contiguous();
  Tensor parts = at::empty({size(), out.numel()}, source.options());
  return run(
      record,
      [&](c10d::Backend& group) {
        std::vector<int64_t> equal;
        Tensor to = bytes_in(parts), from = bytes_in(source);
        return group.alltoall_base(to, from, equal, equal);
      },
      [parts, op, result = out.detach()] {
        result.copy_(reduce_parts(parts, op).view(result.sizes()));
      });
}

Work GlooCommunicator::all_gather(Tensor& out, const Tensor& shard) {
  check_parts("all_gather", out, shard, size());
  const Record record = state_->begin(
      {.op = "all_gather", .dtype = shard.scalar_type(), .numel = shard.numel()});
  if (shard.numel() == 0) return {};
  Target target = target_for(out);
  const Tensor source = shard.detach().contiguous();
  return run(
      record,
      [&](c10d::Backend& group) {
        Tensor to = bytes_in(target.data), from = bytes_in(source);
        return group._allgather_base(to, from);
      },
      std::move(target.finish));
}

Work GlooCommunicator::broadcast(Tensor& tensor, int root) {
  check_tensor("broadcast", tensor);
  if (root < 0 || root >= size()) {
    refuse("broadcast", text("root ", root, "; legal is 0 to ", size() - 1));
  }
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
  check_tensor("all_to_all", out);
  check_tensor("all_to_all", in);
  if (out.scalar_type() != in.scalar_type() || out_rows.empty() != in_rows.empty()) {
    refuse("all_to_all", "legal is one dtype, and rows for both tensors or none");
  }
  auto out_bytes = part_bytes(out, out_rows, size());
  auto in_bytes = part_bytes(in, in_rows, size());
  const Record record = state_->begin({.op = "all_to_all", .dtype = in.scalar_type()});
  if (out_rows.empty() && out.numel() != in.numel()) {
    refuse("all_to_all", text(in.numel(), " elements in, ", out.numel(),
                              " out; legal are equal numbers, or rows"));
  }
  if (out_rows.empty() && out.numel() == 0) return {};
  Target target = target_for(out);
  const Tensor source = in.detach().contiguous();
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
    while (next < receives.size() && receives[next].peer != rank()) ++next;
    if (next == receives.size()) refuse("exchange", "a send to oneself has no receive");
    receives[next++].tensor.detach().copy_(send.tensor.detach());
  }
  while (next < receives.size() && receives[next].peer != rank()) ++next;
  if (next < receives.size()) refuse("exchange", "a receive from oneself has no send");
}

Work GlooCommunicator::exchange(std::span<const Transfer> sends,
                                std::span<const Transfer> receives) {
  for (std::span<const Transfer> list : {sends, receives}) {
    for (const Transfer& transfer : list) {
      check_tensor("exchange", transfer.tensor);
      if (transfer.peer >= 0 && transfer.peer < size()) continue;
      refuse("exchange", text("peer ", transfer.peer, "; legal is 0 to ", size() - 1));
    }
  }
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
      std::vector<Tensor> tensors{bytes_in(send.tensor.detach().contiguous())};
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

Tensor GlooCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::zeros(shape, dtype);
}

void GlooCommunicator::abort(std::string_view reason) {
  state_->abort(std::string(reason));
}

}  // namespace cohort::gloo_backend
