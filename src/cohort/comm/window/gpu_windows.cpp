// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gpu_windows.h"

#include <c10/cuda/CUDAGuard.h>

#include "cohort/comm/device/device_communicator.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/comm/window/cuda_windows.h"
#include "cohort/comm/window/window_group.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

using window_backend::WindowDriver;
using window_backend::WindowGroup;
using window_backend::WindowSizes;

// A driver that cannot be had on this rank alone is known to all when they try.
class NoWindows final : public WindowDriver {
 public:
  explicit NoWindows(std::string why) : why_(std::move(why)) {}

  at::Device device() const override { return at::kCPU; }
  std::string identity() const override { throw ConfigError(why_); }
  void* allocate(size_t) override { throw ConfigError(why_); }
  void release(void*) override {}
  std::string invitation_to(void*) override { return ""; }
  void* open(const std::string&) override { return nullptr; }
  void close(void*) override {}
  uint64_t* map(uint64_t*, size_t) override { return nullptr; }
  void unmap(uint64_t*) override {}
  void give(std::span<uint64_t* const>) override {}
  void take(std::span<uint64_t* const>) override {}
  bool is_captured() const override { return false; }
  std::future<void> settled() override { return {}; }

 private:
  std::string why_;
};

std::shared_ptr<WindowDriver> driver_for(int gpu) {
  try {
    return window_backend::make_cuda_windows(gpu);
  } catch (const ConfigError& error) {
    return std::make_shared<NoWindows>(error.what());
  }
}

// Makes small windows and lets them go: empty, where all ranks could.
std::string why_no_windows(std::shared_ptr<WindowDriver> driver,
                           std::shared_ptr<Communicator> host,
                           const device_comm::DeviceGroupOptions& limits) {
  constexpr WindowSizes kSmall{.for_all = 4096, .for_one = 4096};
  try {
    const WindowGroup attempt(std::move(driver), std::move(host), kSmall, limits);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

WithGpuWindows with_gpu_windows(std::unique_ptr<Communicator> host, int gpu,
                                const ConnectOptions& options) {
  if (host->takes_cuda()) return {std::move(host), ""};
  if (host->size() == 1) return {std::move(host), "a rank alone needs none"};
  if (!shares_memory(*host)) return {std::move(host), "its ranks share no memory"};
  const device_comm::DeviceGroupOptions limits{.timeout = options.timeout,
                                               .join_timeout = options.join_timeout};
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
  const auto driver = driver_for(gpu);
  // The host goes back to where it came from, where there are no windows.
  std::shared_ptr<Communicator> borrowed(host.get(), [](Communicator*) {});
  const std::string why = why_no_windows(driver, borrowed, limits);
  if (!why.empty()) return {std::move(host), why};
  const auto start = [driver, limits](std::shared_ptr<Communicator> ranks) {
    return std::make_shared<WindowGroup>(driver, std::move(ranks), WindowSizes{},
                                         limits);
  };
  device_comm::DeviceSide side{.backend = std::string(host->backend()),
                               .start = start,
                               .device = driver->device(),
                               .captures = true};
  return {device_comm::make_device_communicator(std::move(side), std::move(host)), ""};
}

}  // namespace cohort
