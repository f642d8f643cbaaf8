// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/comm/nccl/nccl_group.h"
#include "cohort/comm/peer_memory.h"

namespace cohort::nccl_backend {

class DeviceCall;

// Tensors of the CPU go to a communicator of the host, those of the GPU to NCCL. That
// is started by the first call with tensors of the GPU, whose GPU is then the group's:
// so that call is one of all ranks, also where it is an exchange, and is not captured.
//
// The order of Communicator holds among tensors of the GPU, and among those of the CPU,
// not between them. NCCL runs one operation of a lane after the other, and compares
// nothing: ranks that start calls on the GPU in different orders, in one group or in
// several of one lane, wait for each other until the timeout. A send may finish before
// its receive is posted.
//
// A call may wait for its peers to make theirs (NCCL connects ranks when they first
// meet), as long as the timeout. Its Work counts the timeout from wait() on. Under
// capture a Work can only be joined.
//
// Parts end with their world, on the GPU too: abort() of a world is that of all of
// them.
class NcclCommunicator : public Communicator {
 public:
  // Without a family it is a world, and has one of its own.
  NcclCommunicator(std::shared_ptr<const Library> library,
                   std::shared_ptr<Communicator> host, const NcclGroupOptions& options);
  ~NcclCommunicator() override;

  std::string_view backend() const override { return "nccl"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int generation() const override { return host_->generation(); }
  bool takes_cuda() const override { return true; }
  bool is_capturable() const override { return true; }
  Tensor stop_word() override;

  Work all_reduce(Tensor& tensor, ReduceOp op) override;
  Work reduce_scatter(Tensor& out, const Tensor& in, ReduceOp op) override;
  Work all_gather(Tensor& out, const Tensor& shard) override;
  Work broadcast(Tensor& tensor, int root) override;
  Work all_to_all(Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows) override;
  Work exchange(std::span<const Transfer> sends,
                std::span<const Transfer> receives) override;
  Work barrier() override { return host_->barrier(); }
  Work so_far() override;
  std::unique_ptr<Communicator> split(int color) override;
  Tensor allocate(at::IntArrayRef shape, at::ScalarType dtype,
                  at::Device device) override;
  void abort(std::string_view reason) override;

 protected:
  Communicator& host() { return *host_; }

 private:
  // Runs `body`, which starts work of NCCL and of the device in the current lane, and
  // makes a Work of that. The tensors live as long as it.
  Work launch(const char* op, std::vector<Tensor> tensors,
              const std::function<void(DeviceCall&)>& body);
  std::shared_ptr<NcclGroup> group_on(const char* op, at::Device device);

  std::shared_ptr<const Library> library_;
  std::shared_ptr<Communicator> host_;
  NcclGroupOptions options_;
  const bool is_world_;
  bool is_pinned_ = false;  // the stop word

  std::mutex mutex_;  // guards what abort() looks at
  std::shared_ptr<NcclGroup> group_;
  std::string aborted_;
  std::optional<at::Device> device_;
};

// Where ranks of the host share memory, they do here, too.
class NcclPeerCommunicator final : public NcclCommunicator, public PeerMemory {
 public:
  NcclPeerCommunicator(std::shared_ptr<const Library> library,
                       std::shared_ptr<Communicator> host,
                       const NcclGroupOptions& options)
      : NcclCommunicator(std::move(library), std::move(host), options),
        peers_(dynamic_cast<PeerMemory&>(this->host())) {}

  std::vector<Tensor> map_peers(const Tensor& mine) override {
    return peers_.map_peers(mine);
  }
  Tensor join(const Tensor& part) override { return peers_.join(part); }
  int64_t joins_at() const override { return peers_.joins_at(); }
  int64_t allocated_bytes() const override { return peers_.allocated_bytes(); }
  Work meet(int64_t what, std::function<void()> work) override {
    return peers_.meet(what, std::move(work));
  }
  std::shared_ptr<void> hold_meetings() override { return peers_.hold_meetings(); }

 private:
  PeerMemory& peers_;
};

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Library> library,
                                                std::shared_ptr<Communicator> host,
                                                const NcclGroupOptions& options);

}  // namespace cohort::nccl_backend
