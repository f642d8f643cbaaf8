// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cohort/comm/device/flight.h"

namespace cohort::relay_backend {

// What a relay needs of a device. That is CUDA; in tests the host takes its place.
class RelayDriver {
 public:
  virtual ~RelayDriver() = default;
  RelayDriver(const RelayDriver&) = delete;
  RelayDriver& operator=(const RelayDriver&) = delete;

  // Whole pages of the host's memory, which lanes then copy to and from by themselves;
  // returns them as lanes have them. ConfigError where that cannot be had.
  virtual void* pin(void* pages, size_t bytes) = 0;
  virtual void unpin(void* pages) noexcept = 0;

  // In the current lane.
  virtual void to_host(void* to, const void* from, size_t bytes) = 0;
  virtual void to_device(void* to, const void* from, size_t bytes) = 0;
  // `told` runs once, on any thread of the host, when all that is before it is done. It
  // asks nothing of the device, and ends soon.
  virtual void tell(std::function<void()> told) = 0;
  // What follows begins when the word, as lanes have it, is at least that.
  virtual void await(uint64_t* word, uint64_t least) = 0;
  // All that the lane was given so far.
  virtual std::shared_ptr<device_comm::Flight> so_far() = 0;

 protected:
  RelayDriver() = default;
};

}  // namespace cohort::relay_backend
