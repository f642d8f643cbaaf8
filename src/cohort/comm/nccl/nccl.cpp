// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl.h"

#include <ATen/cuda/CUDAGraph.h>
#include <unistd.h>

#include <cstdlib>

#include "cohort/comm/backends.h"
#include "cohort/comm/device/device_communicator.h"
#include "cohort/comm/nccl/nccl_group.h"
#include "cohort/core/error.h"

namespace cohort {
namespace {

// libtorch_cuda brings NCCL along, and its kernels make themselves known when it is
// loaded: a program with this backend needs it even where it calls nothing of it.
[[gnu::used]] at::cuda::MempoolId_t (*const kLoadsLibtorchCuda)() =
    &at::cuda::graph_pool_handle;

// NCCL refuses two ranks on one GPU of one host, which it knows by this name; between
// hosts it takes the network, here the loopback. Few channels are as fast there, and
// take less memory of a GPU that several ranks and groups have in common.
void pretend_own_host(const World& world) {
  const std::string name = text("cohort-", world.node_rank, "-", ::getpid());
  ::setenv("NCCL_HOSTID", name.c_str(), /*overwrite=*/1);
  for (const char* channels : {"NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"})
    ::setenv(channels, "2", /*overwrite=*/0);
  if (world.local_size == world.size)
    ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
}

}  // namespace

std::string nccl_fault() {
  const std::string why = why_no_nccl();
  return why.empty() ? "" : text("cannot be used here: ", why);
}

std::unique_ptr<Communicator> make_nccl(const World& world, Store& store,
                                        const ConnectOptions& options) {
  auto library = nccl_backend::load_library();
  if (options.nccl_share_gpu) pretend_own_host(world);
  const device_comm::DeviceGroupOptions limits{.timeout = options.timeout,
                                               .join_timeout = options.join_timeout};
  return device_comm::make_device_communicator(
      {.backend = "nccl",
       .start =
           [library = std::move(library), limits](std::shared_ptr<Communicator> host) {
             return std::make_shared<nccl_backend::NcclGroup>(library, std::move(host),
                                                              limits);
           },
       .captures = true},
      find_backend("auto", world).make(world, store, options));
}

}  // namespace cohort
