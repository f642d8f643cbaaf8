// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>

#include "cohort/tensor.h"

namespace cohort::window_backend {

// What windows need of a device: memory that processes share, and words in pages of the
// host that lanes give and take. That is CUDA; in tests the host takes its place.
class WindowDriver {
 public:
  virtual ~WindowDriver() = default;
  WindowDriver(const WindowDriver&) = delete;
  WindowDriver& operator=(const WindowDriver&) = delete;

  virtual at::Device device() const = 0;
  // Which device that is: the same bytes, at most 32, in every process that uses it.
  virtual std::string identity() const = 0;

  // Memory of the device, and what a peer opens it by, at most 64 bytes. Throw
  // ConfigError where that cannot be had.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* window) = 0;
  virtual std::string invitation_to(void* window) = 0;
  virtual void* open(const std::string& invitation) = 0;
  virtual void close(void* window) = 0;

  // Whole pages of the host's memory as lanes have them. ConfigError as above.
  virtual uint64_t* map(uint64_t* pages, size_t bytes) = 0;
  virtual void unmap(uint64_t* pages) = 0;

  // In the current lane. Words are set to 1 when all that is before give() is done, and
  // every process sees both. What follows take() begins when each of its words was 1
  // and has been set to 0.
  virtual void give(std::span<uint64_t* const> words) = 0;
  virtual void take(std::span<uint64_t* const> words) = 0;

  // Whether the current lane is captured: what it is given runs at each replay.
  virtual bool is_captured() const = 0;
  // Ready when all that lanes of this process were given, replays as well, is done.
  virtual std::future<void> settled() = 0;

 protected:
  WindowDriver() = default;
};

}  // namespace cohort::window_backend
