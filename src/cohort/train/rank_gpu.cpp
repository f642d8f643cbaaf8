// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/rank_gpu.h"

#include "cohort/comm/gpu_relay.h"
#include "cohort/comm/gpu_windows.h"
#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort {

void require_cuda(std::string_view command) {
  const std::string why = why_no_cuda();
  if (!why.empty())
    throw ConfigError(
        text("[", command, "] --device cuda: ", why, "; legal here: cpu"));
}

int gpu_of(const World& world) { return world.local_rank % cuda_device_count(); }

OnGpu with_tensors_of_gpu(std::unique_ptr<Communicator> comm, int gpu,
                          const ConnectOptions& options, bool windows) {
  if (comm->takes_cuda() || comm->size() == 1) return {.comm = std::move(comm)};
  std::string why = "comm.gpu_windows=false";
  if (windows) {
    auto tried = with_gpu_windows(std::move(comm), gpu, options);
    comm = std::move(tried.comm);
    if (tried.why_not.empty()) return {.comm = std::move(comm), .has_windows = true};
    why = "comm.gpu_windows: " + tried.why_not;
  }
  if (comm->backend() != "shm") why = text("--backend ", comm->backend());
  return {.comm = with_gpu_relay(std::move(comm), gpu, options), .over_host = why};
}

std::string why_no_graph(bool has_stages, const std::string& over_host) {
  const std::string so = "so each kernel is started by itself";
  if (has_stages)
    return text(
        "the step of a pipeline is no CUDA graph: what its stages exchange has ",
        "no fixed memory, ", so);
  if (over_host.empty()) return "";
  return text(over_host, "; so tensors of the GPU go over the host, whose thread must ",
              "be told of each call: the step is no CUDA graph, ", so);
}

}  // namespace cohort
