// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/comm/device/device_group.h"
#include "cohort/comm/relay/relay_memory.h"
#include "cohort/comm/relay/relay_thread.h"

namespace cohort::relay_backend {

using device_comm::DeviceGroupOptions;

// The device's side of ranks that can exchange over the host alone: their tensors go
// through pinned memory of the host, and a thread makes the same call there.
//
// A call gives its lane four things: a copy to the host; a note to the thread that it
// is there; a wait until the word of the group has the number of the call; a copy back.
// So the rank's own thread waits for nothing, and what is in other lanes goes on.
//
// The thread has a communicator of its own, a part of the host's with the same ranks:
// the rank's thread may use the host's at the same time. It makes calls in the order in
// which the rank made them, also in different lanes, and all ranks make them in one
// order. Nobody waits forever: a call waits for its lane alone, which was given only
// what was enqueued before, and for its peers to come to the same call.
//
// Sums are those of the host's backend, to the bit.
//
// A replay of a captured call would tell the thread of nothing, so calls are not
// captured.
//
// Failure: what the host's call throws breaks the group. abort(): when the call under
// way has ended the word is past all numbers, so lanes run on, also with what they are
// given later; what they then compute means nothing.
class RelayGroup final : public device_comm::DeviceGroup {
 public:
  // Collective, over `host`. ConfigError where the device cannot.
  RelayGroup(std::shared_ptr<RelayDriver> driver, std::shared_ptr<Communicator> host,
             const DeviceGroupOptions& options);
  // In bounded time, whichever of its peers are left.
  ~RelayGroup() override;

  std::unique_ptr<device_comm::DeviceCall> call(const std::string& what,
                                                device_comm::Stream lane) override;
  bool orders_lanes() const override { return true; }

  int rank() const { return host().rank(); }
  int size() const { return host().size(); }
  RelayDriver& driver() { return *driver_; }

  // What a call does with so many bytes of the host's memory: before it, on the thread,
  // and after it.
  struct Passage {
    size_t bytes;
    std::function<void(std::byte*)> fill;
    std::function<Work(Communicator&, std::byte*)> call;
    std::function<void(const std::byte*)> take;
  };
  // In `lane`, which is the current one.
  void pass(device_comm::Stream lane, const Passage& passage);

 private:
  void on_broken() override { thread_.stop(reason()); }
  bool becomes_idle(const std::function<bool()>& gives_up) const;

  std::shared_ptr<RelayDriver> driver_;
  RelayMemory memory_;
  RelayThread thread_;  // the last: it uses the others
};

}  // namespace cohort::relay_backend
