// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cohort/comm/device/device_call.h"
#include "cohort/comm/relay/relay_group.h"

namespace cohort::relay_backend {

// What one call of a communicator asks of a relay.
class RelayCall final : public device_comm::DeviceCall {
 public:
  RelayCall(RelayGroup& group, std::string what, device_comm::Stream lane)
      : group_(group), what_(std::move(what)), lane_(lane) {}

  void reduce_all(const Tensor& tensor, ReduceOp op) override;
  void reduce_part(const Tensor& out, const Tensor& in, ReduceOp op) override;
  void gather(const Tensor& out, const Tensor& in) override;
  void broadcast(const Tensor& tensor, int root) override;

 private:
  void transfer(const std::vector<Piece>& sent,
                const std::vector<Piece>& received) override;

  void pass(RelayGroup::Passage passage);

  RelayGroup& group_;
  std::string what_;
  device_comm::Stream lane_;
};

}  // namespace cohort::relay_backend
