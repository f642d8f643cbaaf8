// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/node/communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "cohort/comm/node/reduce.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort::node {
namespace {

class Collective final : public Operation {
 public:
  Collective(std::shared_ptr<Group> group, uint64_t sequence)
      : group_(std::move(group)), sequence_(sequence) {}
  void wait() override { group_->wait(sequence_); }
  bool poll() override { return group_->poll(sequence_); }

 private:
  std::shared_ptr<Group> group_;
  uint64_t sequence_;
};

class Exchange final : public Operation {
 public:
  Exchange(std::shared_ptr<Group> group, uint64_t id)
      : group_(std::move(group)), id_(id) {}
  void wait() override { group_->wait_exchange(id_); }
  bool poll() override { return group_->poll_exchange(id_); }

 private:
  std::shared_ptr<Group> group_;
  uint64_t id_;
};

}  // namespace

NodeCommunicator::NodeCommunicator(std::shared_ptr<Group> group)
    : group_(std::move(group)), name_(group_->memory().name()) {}

Work NodeCommunicator::all_reduce(Tensor& tensor, ReduceOp op) {
  check_reduce(tensor, op, "all_reduce");
  if (size() == 1) return Work();
  Call& call = start(Op::kAllReduce, tensor, "all_reduce");
  call.reduce = op;
  call.numel = tensor.numel();
  set_in(call, tensor);
  if (call.in.is_same(tensor)) {
    call.target = const_cast<std::byte*>(call.source);
  } else {
    // The contiguous copy is reduced in place and copied back.
    call.out = call.in;
    call.copy_to = tensor;
    call.target = const_cast<std::byte*>(call.source);
  }
  return post(call);
}

Work NodeCommunicator::reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) {
  check_reduce(in, op, "reduce_scatter");
  check_same(out, in, out.numel() * size(), in.numel(), "reduce_scatter");
  Call& call = start(Op::kReduceScatter, in, "reduce_scatter");
  call.reduce = op;
  call.numel = out.numel();
  set_in(call, in);
  set_out(call, out);
  return post(call);
}

Work NodeCommunicator::all_gather(Tensor& out, const Tensor& shard) {
  check_same(out, shard, out.numel(), shard.numel() * size(), "all_gather");
  Call& call = start(Op::kAllGather, shard, "all_gather");
  call.numel = shard.numel();
  set_in(call, shard);
  set_out(call, out);
  return post(call);
}

Work NodeCommunicator::broadcast(Tensor& tensor, int root) {
  if (root < 0 || root >= size()) {
    refuse("broadcast", text("root ", root, "; legal: 0 to ", size() - 1));
  }
  Call& call = start(Op::kBroadcast, tensor, "broadcast");
  call.root = root;
  call.numel = tensor.numel();
  if (root == rank()) {
    set_in(call, tensor);
  } else {
    set_out(call, tensor);
    call.source = call.target;
    call.source_bytes = static_cast<int64_t>(tensor.nbytes());
  }
  return post(call);
}

Work NodeCommunicator::all_to_all(Tensor& out, const Tensor& in,
                                  std::span<const int64_t> out_rows,
                                  std::span<const int64_t> in_rows) {
  check_same(out, in, 0, 0, "all_to_all");
  auto sent = count_rows(in, in_rows, "in_rows");
  auto received = count_rows(out, out_rows, "out_rows");
  Call& call = start(Op::kAllToAll, in, "all_to_all");
  call.sent = std::move(sent);
  call.received = std::move(received);
  set_in(call, in);
  set_out(call, out);
  return post(call);
}

Work NodeCommunicator::exchange(std::span<const Transfer> sends,
                                std::span<const Transfer> receives) {
  for (const auto& side : {sends, receives}) {
    for (const auto& transfer : side) {
      check_tensor(transfer.tensor, "exchange");
      if (transfer.peer >= 0 && transfer.peer < size()) continue;
      refuse("exchange", text("peer ", transfer.peer, "; legal: 0 to ", size() - 1));
    }
  }
  return Work(std::make_unique<Exchange>(group_, group_->exchange(sends, receives)));
}

Work NodeCommunicator::barrier() {
  Call& call = group_->next_call();
  call = Call();
  call.op = Op::kBarrier;
  return post(call);
}

// Two small all_gathers over the parent: the colors, then where the first rank of
// each color has put the new control block.
std::unique_ptr<Communicator> NodeCommunicator::split(int color) {
  std::vector<int64_t> colors(size());
  const int64_t mine = std::max(color, -1);
  gather(Op::kSplit, &mine, colors.data(), sizeof(int64_t));
  const GroupSpec& parent = group_->spec();
  GroupSpec spec = parent;
  spec.owns_control = false;
  spec.world_ranks.clear();
  if (!spec.world) spec.world = group_;
  int leader = -1;
  for (int r = 0; r < size(); ++r) {
    if (color < 0 || colors[r] != color) continue;
    if (leader < 0) leader = r;
    if (r == rank()) spec.rank = static_cast<int>(spec.world_ranks.size());
    spec.world_ranks.push_back(parent.world_ranks[r]);
  }
  Place place = 0;
  if (leader == rank()) {
    parent.memory->sweep();
    const size_t bytes = Layout(static_cast<int>(spec.world_ranks.size())).bytes();
    try {
      place = parent.memory->place_of(parent.memory->allocate(bytes), bytes);
    } catch (const Error&) {
      // Its members are told by the 0.
    }
    spec.owns_control = true;
  }
  std::vector<Place> places(size());
  gather(Op::kSplit, &place, places.data(), sizeof(Place));
  if (color < 0) return nullptr;
  if (places[leader] == 0) {
    group_->abort("split: no shared memory for the new group");
    throw CommError(group_->prefix() + "split: no shared memory for the new group");
  }
  spec.control = static_cast<std::byte*>(parent.memory->at(places[leader]));
  return std::make_unique<NodeCommunicator>(std::make_shared<Group>(std::move(spec)));
}

Tensor NodeCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                        std::multiplies<int64_t>());
  if (numel == 0) return at::empty(shape, options);
  auto memory = group_->spec().memory;
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  void* data = memory->allocate(static_cast<size_t>(bytes));
  report_memory(data, bytes);
  const auto release = [memory, bytes](void* block) {
    report_memory(block, -bytes);
    memory->release(block);
  };
  return at::from_blob(data, shape, release, options);
}

void NodeCommunicator::exchange_places(const Tensor& mine, const char* name) {
  if (!mine.is_contiguous()) refuse(name, "a tensor that is not contiguous");
  Call& call = start(Op::kMapPeers, mine, name);
  call.numel = mine.numel();
  set_in(call, mine);
  post(call).wait();
}

int64_t NodeCommunicator::joins_at() const {
  return static_cast<int64_t>(group_->spec().memory->joins_at());
}

int64_t NodeCommunicator::allocated_bytes() const {
  return static_cast<int64_t>(group_->spec().memory->allocated_bytes());
}

Tensor NodeCommunicator::join(const Tensor& part) {
  if (joins_at() == 0) refuse("join", "memory that cannot be joined");
  if (part.numel() == 0 || part.nbytes() % joins_at() != 0)
    refuse("join", text(part.nbytes(), " bytes; legal: multiples of ", joins_at()));
  exchange_places(part, "join");
  auto memory = group_->spec().memory;
  auto joined = memory->join(group_->places(), part.nbytes());
  void* const data = joined.get();
  // What it shows is the memory's: that must outlive it.
  return at::from_blob(
      data, {size() * part.numel()}, [joined = std::move(joined), memory](void*) {},
      part.options());
}

std::vector<Tensor> NodeCommunicator::map_peers(const Tensor& mine) {
  exchange_places(mine, "map_peers");
  auto memory = group_->spec().memory;
  std::vector<Tensor> views;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || mine.numel() == 0) {
      views.push_back(mine);
      continue;
    }
    const auto keep = [memory](void*) {};
    views.push_back(at::from_blob(memory->at(group_->places()[r]), mine.sizes(), keep,
                                  mine.options()));
  }
  return views;
}

Work NodeCommunicator::meet(int64_t what, std::function<void()> work) {
  Call& call = group_->next_call();
  call.op = Op::kMeet;
  call.dtype = at::kByte;
  call.reduce = ReduceOp::kSum;
  call.root = -1;
  call.numel = what;
  call.source_bytes = 0;
  call.work = std::move(work);
  return post(call);
}

Work NodeCommunicator::post(Call& call) {
  return Work(std::make_unique<Collective>(group_, group_->post(call)));
}

Call& NodeCommunicator::start(Op op, const Tensor& like, const char* name) {
  check_tensor(like, name);
  Call& call = group_->next_call();
  call.op = op;
  call.dtype = like.scalar_type();
  call.reduce = ReduceOp::kSum;
  call.root = -1;
  call.numel = 0;
  call.copy_to = Tensor();
  return call;
}

void NodeCommunicator::set_in(Call& call, const Tensor& in) {
  call.in = in.is_contiguous() ? in : in.contiguous();
  call.source = static_cast<const std::byte*>(call.in.const_data_ptr());
  call.source_bytes = static_cast<int64_t>(call.in.nbytes());
}

void NodeCommunicator::set_out(Call& call, Tensor& out) {
  if (out.is_contiguous()) {
    call.out = out;
  } else {
    call.out = at::empty(out.sizes(), out.options(), at::MemoryFormat::Contiguous);
    call.copy_to = out;
  }
  call.target = static_cast<std::byte*>(call.out.mutable_data_ptr());
}

void NodeCommunicator::check_tensor(const Tensor& tensor, const char* op) const {
  if (!tensor.defined()) refuse(op, "an undefined tensor");
  if (!tensor.is_cpu()) {
    refuse(op, text("a tensor on ", tensor.device().str(), "; legal: cpu"));
  }
  if (!is_reducible(tensor.scalar_type())) {
    refuse(op,
           text("dtype ", c10::toString(tensor.scalar_type()),
                "; legal: float64, float32, float16, bfloat16, int64, int32, uint8"));
  }
}

void NodeCommunicator::check_same(const Tensor& out, const Tensor& in,
                                  int64_t out_numel, int64_t in_numel,
                                  const char* op) const {
  check_tensor(in, op);
  check_tensor(out, op);
  if (out.scalar_type() != in.scalar_type()) {
    refuse(op, text("in is ", c10::toString(in.scalar_type()), " and out is ",
                    c10::toString(out.scalar_type()), "; they must be one dtype"));
  }
  if (out_numel != in_numel) {
    refuse(op, text("in has ", in.numel(), " elements and out ", out.numel(),
                    " in a group of ", size()));
  }
}

void NodeCommunicator::check_reduce(const Tensor& tensor, ReduceOp op,
                                    const char* name) const {
  check_tensor(tensor, name);
  if (op == ReduceOp::kMean && !at::isFloatingType(tensor.scalar_type())) {
    refuse(name, text("mean of ", c10::toString(tensor.scalar_type()),
                      "; legal: floating types"));
  }
}

// Elements for each rank: equal parts, or rows along dim 0.
std::vector<int64_t> NodeCommunicator::count_rows(const Tensor& tensor,
                                                  std::span<const int64_t> rows,
                                                  const char* which) const {
  if (rows.empty()) {
    if (tensor.numel() % size() != 0) {
      refuse("all_to_all", text(tensor.numel(), " elements in ", size(),
                                " equal parts; give ", which));
    }
    return std::vector<int64_t>(size(), tensor.numel() / size());
  }
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t height = tensor.dim() > 0 ? tensor.size(0) : 1;
  const bool negative =
      std::any_of(rows.begin(), rows.end(), [](auto n) { return n < 0; });
  if (static_cast<int>(rows.size()) != size() || total != height || negative) {
    refuse("all_to_all", text(which, " has ", rows.size(), " entries of ", total,
                              " rows in all; legal: ", size(), " entries of ", height));
  }
  const int64_t row = height > 0 ? tensor.numel() / height : 0;
  std::vector<int64_t> counts(rows.begin(), rows.end());
  for (auto& count : counts) count *= row;
  return counts;
}

void NodeCommunicator::refuse(const char* op, const std::string& what) const {
  throw ConfigError(text(group_->prefix(), op, ": ", what, " (rank ", rank(), ")"));
}

void NodeCommunicator::gather(Op op, const void* mine, void* all, int64_t bytes) {
  Call& call = group_->next_call();
  call = Call();
  call.op = op;
  call.source = static_cast<const std::byte*>(mine);
  call.source_bytes = bytes;
  call.target = static_cast<std::byte*>(all);
  post(call).wait();
}

}  // namespace cohort::node
