// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/device/device_family.h"
#include "cohort/comm/device/device_group.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/communicator.h"

namespace cohort::device_comm {

class DeviceFlight;

// What is behind the tensors of the GPU.
struct DeviceSide {
  std::string backend;  // as Communicator has it
  // Collective over the ranks of `host`; the GPU is the current one.
  std::function<std::shared_ptr<DeviceGroup>(std::shared_ptr<Communicator> host)> start;
  std::optional<at::Device> device = std::nullopt;  // the only one; none: any
  bool captures = false;                            // calls may be captured
  std::shared_ptr<DeviceFamily> family = nullptr;   // a part has that of its world
};

// Tensors of the CPU go to a communicator of the host, those of the GPU to a
// DeviceGroup. That is started by the first call with tensors of the GPU, whose GPU is
// then the group's: so that call is one of all ranks, also where it is an exchange, and
// is not captured.
//
// The order of Communicator holds among tensors of the GPU, and among those of the CPU,
// not between them. The device runs one operation of a lane after the other, and
// compares nothing: ranks that start calls on the GPU in different orders, in one group
// or in several of one lane, wait for each other until the timeout. A send may finish
// before its receive is posted.
//
// A call may wait for its peers to make theirs (ranks connect when they first meet), as
// long as the timeout. Its Work counts the timeout from wait() on. Under capture, where
// that is possible, a Work can only be joined.
//
// Parts end with their world, on the GPU too: abort() of a world is that of all of
// them.
class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(DeviceSide side, std::shared_ptr<Communicator> host);
  ~DeviceCommunicator() override;

  std::string_view backend() const override { return side_.backend; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int generation() const override { return host_->generation(); }
  bool takes_cuda() const override { return true; }
  bool is_capturable() const override { return side_.captures; }
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
  // Runs `body`, which starts work of the device in the current lane, and makes a Work
  // of that. The tensors live as long as it.
  Work launch(const char* op, std::vector<Tensor> tensors,
              const std::function<void(DeviceCall&)>& body);
  std::shared_ptr<DeviceGroup> group_on(const char* op, at::Device device);
  // Before a call in the current lane, and after it.
  void begin_call(const std::string& what, const std::vector<Tensor>& tensors);
  std::shared_ptr<DeviceFlight> end_call();

  DeviceSide side_;
  std::shared_ptr<Communicator> host_;
  const bool is_world_;
  bool is_pinned_ = false;  // the stop word

  std::mutex mutex_;  // guards what abort() looks at
  std::shared_ptr<DeviceGroup> group_;
  std::string aborted_;
  std::optional<at::Device> device_;
  // The last calls, where the group does not order lanes itself.
  std::shared_ptr<DeviceFlight> last_, last_captured_;
};

// Where ranks of the host share memory, they do here, too.
class DevicePeerCommunicator final : public DeviceCommunicator, public PeerMemory {
 public:
  DevicePeerCommunicator(DeviceSide side, std::shared_ptr<Communicator> host)
      : DeviceCommunicator(std::move(side), std::move(host)),
        peers_(dynamic_cast<PeerMemory&>(this->host())) {}

  std::vector<Tensor> map_peers(const Tensor& mine) override {
    return peers_.map_peers(mine);
  }
  Tensor join(const Tensor& part) override { return peers_.join(part); }
  int64_t join_alignment() const override { return peers_.join_alignment(); }
  int64_t allocated_bytes() const override { return peers_.allocated_bytes(); }
  Work work_jointly(int64_t what, std::function<void()> work) override {
    return peers_.work_jointly(what, std::move(work));
  }
  std::shared_ptr<void> hold_joint_work() override { return peers_.hold_joint_work(); }

 private:
  PeerMemory& peers_;
};

std::unique_ptr<Communicator> make_device_communicator(
    DeviceSide side, std::shared_ptr<Communicator> host);

}  // namespace cohort::device_comm
