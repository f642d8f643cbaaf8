// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/nccl/nccl_library.h"

namespace cohort::nccl_backend {

using device_comm::DeviceGroupOptions;

// One ncclComm over the ranks of a communicator of the host: its start, its failure and
// its end. Nothing here names CUDA.
//
// The ncclComm does not block: a call that NCCL has not settled is asked about until it
// has, so that every wait has a deadline and hears of an abort. After the first failure
// the ncclComm ends on a thread of its own: that of captured work ends only with the
// graphs, which their owner drops when it hears of it.
class NcclGroup final : public device_comm::DeviceGroup {
 public:
  // Collective: all ranks of `host` come here. The GPU is the current one.
  NcclGroup(std::shared_ptr<const Library> library, std::shared_ptr<Communicator> host,
            const DeviceGroupOptions& options);
  // Ends the ncclComm in bounded time, whichever of its peers are left.
  ~NcclGroup() override;

  std::unique_ptr<device_comm::DeviceCall> call(const std::string& what,
                                                Stream lane) override;
  bool orders_lanes() const override { return true; }

  using Call = std::function<Result(const Library&, Handle)>;

  // Makes a call of NCCL and returns when it is enqueued: the first ones between two
  // ranks wait for the other to make its own. Throws CommError.
  void start(const std::string& what, const Call& call);

 private:
  std::string fault() override;
  void on_broken() override { end_comm(); }

  void connect();
  void settle(const std::string& what, Result result, Clock::time_point deadline);
  Result async_error();
  bool farewell();
  void end_comm();
  void wait_for_end();
  std::string describe(Result result) const;

  std::shared_ptr<const Library> library_;
  std::mutex calls_;  // guards calls of NCCL; held for moments only
  Handle handle_ = nullptr;
  std::future<void> ended_;
};

}  // namespace cohort::nccl_backend
