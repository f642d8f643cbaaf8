// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/comm/peer_memory.h"
#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/communicator.h"

namespace cohort::shared_memory {

// Turns what the caller gives into calls of a SharedGroup.
class SharedMemoryCommunicator final : public Communicator, public PeerMemory {
 public:
  explicit SharedMemoryCommunicator(std::shared_ptr<SharedGroup> group);

  std::string_view backend() const override { return name_; }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int generation() const override { return group_->generation(); }

  Work all_reduce(Tensor& tensor, ReduceOp op) override;
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override;
  Work all_gather(Tensor& out, const Tensor& shard) override;
  Work broadcast(Tensor& tensor, int root) override;
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override;
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override;
  Work barrier() override;
  std::unique_ptr<Communicator> split(int color) override;
  Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                  at::Device device) override;
  void abort(std::string_view reason) override { group_->abort(reason); }

  std::vector<Tensor> map_peers(const Tensor& mine) override;
  Tensor join(const Tensor& part) override;
  int64_t join_alignment() const override;
  int64_t allocated_bytes() const override;
  Work work_jointly(int64_t what, std::function<void()> work) override;
  std::shared_ptr<void> hold_joint_work() override;

 private:
  Work post(Call& call);
  void exchange_places(const Tensor& mine, const char* name);
  Call& start(Op op, const Tensor& like);
  void set_in(Call& call, const Tensor& in);
  void set_out(Call& call, Tensor& out);
  void gather(Op op, const void* mine, void* all, int64_t bytes);

  std::shared_ptr<SharedGroup> group_;
  std::string name_;
};

}  // namespace cohort::shared_memory
