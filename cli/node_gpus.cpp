// SPDX-License-Identifier: Apache-2.0
#include "cli/node_gpus.h"

#include "cli/child_answer.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort::cli {
namespace {

// A node with eight GPUs and a cold driver takes seconds.
constexpr std::chrono::seconds kCudaPatience{60};

std::string count_or_throw() {
  const std::string why = why_no_cuda();
  if (!why.empty()) throw ConfigError(why);
  return text(cuda_device_count());
}

}  // namespace

NodeGpus look_for_gpus() {
  const ChildAnswer answer = ask_child(count_or_throw, kCudaPatience);
  if (!answer.worked) return {.fault = answer.text};
  return {.count = static_cast<int>(parse_int(answer.text, "number of GPUs"))};
}

std::string why_no_nccl_ranks(const NodeGpus& gpus, int ranks, bool shares) {
  if (!gpus.fault.empty())
    return text("--device cuda: ", gpus.fault, "; legal here: cpu");
  if (shares || ranks <= gpus.count) return "";
  return text("--backend nccl with ", ranks, " ranks on a node that has ", gpus.count,
              " GPU", gpus.count == 1 ? "" : "s",
              "; legal: a rank for each GPU at most, --backend auto, or, for tests, "
              "comm.nccl_share_gpu=true");
}

}  // namespace cohort::cli
