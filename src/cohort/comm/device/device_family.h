// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/device/peer_processes.h"
#include "cohort/communicator.h"

namespace cohort::device_comm {

class DeviceGroup;

// All groups that were made of one world. When one of them is aborted, all hear that
// the work of their GPUs means nothing from then on; and all end with their world.
//
// The first of them to end its work tells the others on its node before: a kernel whose
// peer was made to end early goes on with whatever it finds.
//
// Thread safety: any thread may call stop() and abort(), at any time.
class DeviceFamily {
 public:
  // Collective. `host` has all ranks of the world, and lives as long as the family is
  // stopped.
  explicit DeviceFamily(Communicator& host) : host_(host), processes_(host) {}

  // Those of all ranks of the world.
  PeerProcesses& processes() { return processes_; }

  // Collective, the first time: the word of this rank, in memory that kernels reach.
  Tensor word();
  // `reason`: the first one stays.
  void stop(const std::string& reason);
  // Why what the GPU of this rank does means nothing any more; empty: it has not been
  // stopped, by this rank or by one that reaches its word.
  std::string why_stopped();

  void add(const std::shared_ptr<DeviceGroup>& group);
  void abort(const std::string& reason);

 private:
  static void set(const Tensor& word);

  Communicator& host_;
  PeerProcesses processes_;
  std::mutex mutex_;  // guards what follows
  Tensor word_;
  std::vector<Tensor> others_;  // words of ranks that this one reaches
  std::vector<std::weak_ptr<DeviceGroup>> groups_;
  std::optional<std::string> stopped_;  // the reason
  std::optional<std::string> aborted_;
};

}  // namespace cohort::device_comm
