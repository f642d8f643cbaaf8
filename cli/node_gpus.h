// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort::cli {

// What a process of this node finds when it starts CUDA.
struct NodeGpus {
  std::string fault;  // why it cannot, in one line; empty: it can
  int count = 0;
};
// Looks in a child: a process that starts ranks may ask.
NodeGpus look_for_gpus();

// Why that many ranks of a node cannot use NCCL, as a line without the command's name;
// empty: they can. `shares`: they may be several on one GPU.
std::string why_no_nccl_ranks(const NodeGpus& gpus, int ranks, bool shares);

}  // namespace cohort::cli
