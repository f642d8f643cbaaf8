// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gpu_relay.h"

#include "cohort/comm/device/device_communicator.h"
#include "cohort/comm/relay/cuda_relay.h"
#include "cohort/comm/relay/relay_group.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

std::shared_ptr<relay_backend::RelayDriver> relay_driver(const Communicator& host,
                                                         int gpu) {
  try {
    return relay_backend::make_cuda_relay(gpu);
  } catch (const ConfigError& error) {
    throw ConfigError(text("[comm.", host.backend(), "] ranks on GPUs: ", error.what(),
                           "; legal: --backend nccl, or --device cpu"));
  }
}

}  // namespace

std::unique_ptr<Communicator> with_gpu_relay(std::unique_ptr<Communicator> host,
                                             int gpu, const ConnectOptions& options) {
  if (host->takes_cuda() || host->size() == 1) return host;
  const device_comm::DeviceGroupOptions limits{.timeout = options.timeout,
                                               .join_timeout = options.join_timeout};
  const auto driver = relay_driver(*host, gpu);
  const auto start = [driver, limits](std::shared_ptr<Communicator> ranks) {
    return std::make_shared<relay_backend::RelayGroup>(driver, std::move(ranks),
                                                       limits);
  };
  device_comm::DeviceSide side{
      .backend = std::string(host->backend()),
      .start = start,
      .device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu))};
  return device_comm::make_device_communicator(std::move(side), std::move(host));
}

}  // namespace cohort
