// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/comm/world.h"
#include "cohort/communicator.h"

namespace cohort {

// ConfigError, in the name of that command, where nothing can run on a GPU. Only a rank
// asks: CUDA does not survive a fork.
void require_cuda(std::string_view command);

// Ranks of a node take its GPUs in turn.
int gpu_of(const World& world);

struct OnGpu {
  std::unique_ptr<Communicator> comm;  // takes tensors of the GPU, unless it is alone
  bool has_windows = false;            // through memory of the GPU that ranks share
  std::string over_host;               // why they go over the host; empty: they do not
};

// Collective: what `comm` does not do by itself is done through windows, where all
// ranks share one GPU and `windows` asks for it, and else over the host.
OnGpu with_tensors_of_gpu(std::unique_ptr<Communicator> comm, int gpu,
                          const ConnectOptions& options, bool windows);

// Why a step on GPUs is no CUDA graph, in one line; empty: it may be one.
std::string why_no_graph(bool has_stages, const std::string& over_host);

}  // namespace cohort
