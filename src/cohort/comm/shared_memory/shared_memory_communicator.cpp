// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/shared_memory_communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "cohort/comm/arguments.h"
#include "cohort/comm/staging.h"
#include "cohort/core/error.h"
#include "cohort/core/memory.h"

namespace cohort::shared_memory {
namespace {

class Collective final : public Operation {
 public:
  Collective(std::shared_ptr<SharedGroup> group, uint64_t sequence)
      : group_(std::move(group)), sequence_(sequence) {}
  void wait() override { group_->wait(sequence_); }
  bool poll() override { return group_->poll(sequence_); }

 private:
  std::shared_ptr<SharedGroup> group_;
  uint64_t sequence_;
};

class Exchange final : public Operation {
 public:
  Exchange(std::shared_ptr<SharedGroup> group, uint64_t id)
      : group_(std::move(group)), id_(id) {}
  void wait() override { group_->wait_exchange(id_); }
  bool poll() override { return group_->poll_exchange(id_); }

 private:
  std::shared_ptr<SharedGroup> group_;
  uint64_t id_;
};

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(std::shared_ptr<SharedGroup> group)
    : group_(std::move(group)), name_(group_->memory().name()) {}

Work SharedMemoryCommunicator::all_reduce(Tensor& tensor, ReduceOp op) {
  check_all_reduce(*this, tensor, op);
  if (size() == 1) {
    group_->check_usable();
    return Work();
  }
  Call& call = start(Op::kAllReduce, tensor);
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

Work SharedMemoryCommunicator::reduce_scatter(Tensor& out, const Tensor& in,
                                              ReduceOp op) {
  check_reduce_scatter(*this, out, in, op);
  Call& call = start(Op::kReduceScatter, in);
  call.reduce = op;
  call.numel = out.numel();
  set_in(call, in);
  set_out(call, out);
  return post(call);
}

Work SharedMemoryCommunicator::all_gather(Tensor& out, const Tensor& shard) {
  check_all_gather(*this, out, shard);
  Call& call = start(Op::kAllGather, shard);
  call.numel = shard.numel();
  set_in(call, shard);
  set_out(call, out);
  return post(call);
}

Work SharedMemoryCommunicator::broadcast(Tensor& tensor, int root) {
  check_broadcast(*this, tensor, root);
  Call& call = start(Op::kBroadcast, tensor);
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

Work SharedMemoryCommunicator::all_to_all(Tensor& out, const Tensor& in,
                                          std::span<const int64_t> out_rows,
                                          std::span<const int64_t> in_rows) {
  Parts parts = check_all_to_all(*this, out, in, out_rows, in_rows);
  Call& call = start(Op::kAllToAll, in);
  call.sent = std::move(parts.sent);
  call.received = std::move(parts.received);
  set_in(call, in);
  set_out(call, out);
  return post(call);
}

Work SharedMemoryCommunicator::exchange(std::span<const Transfer> sends,
                                        std::span<const Transfer> receives) {
  check_exchange(*this, sends, receives);
  return Work(std::make_unique<Exchange>(group_, group_->exchange(sends, receives)));
}

Work SharedMemoryCommunicator::barrier() {
  Call& call = group_->next_call();
  call = Call();
  call.op = Op::kBarrier;
  return post(call);
}

// Two small all_gathers over the parent: the colors, then where the first rank of
// each color has put the new control block.
std::unique_ptr<Communicator> SharedMemoryCommunicator::split(int color) {
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
  Address address = 0;
  if (leader == rank()) {
    parent.memory->sweep();
    const size_t bytes =
        ControlLayout(static_cast<int>(spec.world_ranks.size())).bytes();
    try {
      address = parent.memory->address_of(parent.memory->allocate(bytes), bytes);
    } catch (const Error&) {
      // Its members are told by the 0.
    }
    spec.owns_control = true;
  }
  std::vector<Address> addresses(size());
  gather(Op::kSplit, &address, addresses.data(), sizeof(Address));
  if (color < 0) return nullptr;
  if (addresses[leader] == 0) {
    group_->abort("split: no shared memory for the new group");
    throw CommError(group_->prefix() + "split: no shared memory for the new group");
  }
  spec.control = static_cast<std::byte*>(parent.memory->at(addresses[leader]));
  return std::make_unique<SharedMemoryCommunicator>(
      std::make_shared<SharedGroup>(std::move(spec)));
}

Tensor SharedMemoryCommunicator::allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                          at::Device device) {
  check_allocate(*this, shape, dtype, device);
  const auto options = at::TensorOptions().dtype(dtype);
  const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                        std::multiplies<int64_t>());
  if (numel == 0) return at::empty(shape, options);
  auto memory = group_->spec().memory;
  memory->sweep();
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  void* data = memory->allocate(static_cast<size_t>(bytes));
  report_memory(data, bytes);
  const auto release = [memory, bytes](void* block) {
    report_memory(block, -bytes);
    memory->release(block);
  };
  return at::from_blob(data, shape, release, options);
}

void SharedMemoryCommunicator::exchange_places(const Tensor& mine, const char* name) {
  check_tensor(*this, name, mine);
  if (!mine.is_contiguous())
    refuse_call(*this, name, "a tensor that is not contiguous; legal: one that is");
  Call& call = start(Op::kMapPeers, mine);
  call.numel = mine.numel();
  set_in(call, mine);
  group_->show(mine);
  post(call).wait();
}

int64_t SharedMemoryCommunicator::join_alignment() const {
  return static_cast<int64_t>(group_->spec().memory->join_alignment());
}

int64_t SharedMemoryCommunicator::allocated_bytes() const {
  return static_cast<int64_t>(group_->spec().memory->allocated_bytes());
}

Tensor SharedMemoryCommunicator::join(const Tensor& part) {
  check_tensor(*this, "join", part);
  if (join_alignment() == 0)
    refuse_call(*this, "join",
                "memory that cannot be joined; legal: where join_alignment()");
  if (part.numel() == 0 || part.nbytes() % join_alignment() != 0) {
    refuse_call(*this, "join",
                text(part.nbytes(), " bytes; legal: multiples of ", join_alignment()));
  }
  exchange_places(part, "join");
  auto memory = group_->spec().memory;
  auto joined = memory->join(group_->addresses(), part.nbytes());
  void* const data = joined.get();
  // What it shows is the memory's: that must outlive it.
  return at::from_blob(
      data, {size() * part.numel()}, [joined = std::move(joined), memory](void*) {},
      part.options());
}

std::vector<Tensor> SharedMemoryCommunicator::map_peers(const Tensor& mine) {
  exchange_places(mine, "map_peers");
  auto memory = group_->spec().memory;
  std::vector<Tensor> views;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || mine.numel() == 0) {
      views.push_back(mine);
      continue;
    }
    const auto keep = [memory](void*) {};
    views.push_back(at::from_blob(memory->at(group_->addresses()[r]), mine.sizes(),
                                  keep, mine.options()));
  }
  return views;
}

Work SharedMemoryCommunicator::work_jointly(int64_t what, std::function<void()> work) {
  Call& call = group_->next_call();
  call.op = Op::kJointWork;
  call.dtype = at::kByte;
  call.reduce = ReduceOp::kSum;
  call.root = -1;
  call.numel = what;
  call.source_bytes = 0;
  call.work = std::move(work);
  return post(call);
}

std::shared_ptr<void> SharedMemoryCommunicator::hold_joint_work() {
  group_->siblings().hold_joint_work(1);
  return {nullptr, [group = group_](void*) { group->siblings().hold_joint_work(-1); }};
}

Work SharedMemoryCommunicator::post(Call& call) {
  return Work(std::make_unique<Collective>(group_, group_->post(call)));
}

Call& SharedMemoryCommunicator::start(Op op, const Tensor& like) {
  Call& call = group_->next_call();
  call.op = op;
  call.dtype = like.scalar_type();
  call.reduce = ReduceOp::kSum;
  call.root = -1;
  call.numel = 0;
  call.copy_to = Tensor();
  return call;
}

void SharedMemoryCommunicator::set_in(Call& call, const Tensor& in) {
  call.in = in.is_contiguous() ? in : contiguous_copy(in);
  call.source = static_cast<const std::byte*>(call.in.const_data_ptr());
  call.source_bytes = static_cast<int64_t>(call.in.nbytes());
}

void SharedMemoryCommunicator::set_out(Call& call, Tensor& out) {
  if (out.is_contiguous()) {
    call.out = out;
  } else {
    call.out = contiguous_like(out);
    call.copy_to = out;
  }
  call.target = static_cast<std::byte*>(call.out.mutable_data_ptr());
}

void SharedMemoryCommunicator::gather(Op op, const void* mine, void* all,
                                      int64_t bytes) {
  Call& call = group_->next_call();
  call = Call();
  call.op = op;
  call.source = static_cast<const std::byte*>(mine);
  call.source_bytes = bytes;
  call.target = static_cast<std::byte*>(all);
  post(call).wait();
}

}  // namespace cohort::shared_memory
