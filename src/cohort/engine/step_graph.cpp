// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_graph.h"

#include "cohort/core/error.h"
#include "cohort/engine/cuda/kernel_search.h"

namespace cohort {
namespace {

constexpr int kWarmGraphSteps = 3;

}  // namespace

StepGraph::StepGraph(CudaLane& lane, const DeviceBatches& batches, Options options)
    : lane_(lane), batches_(batches), options_(options) {}

bool StepGraph::run(bool whole, const std::function<void()>& step) {
  const bool usual = whole && batches_.is_usual();
  if (whole && !usual && options_.captures && !options_.alone)
    throw ConfigError(
        "[engine] two whole batches have different shapes, and ranks that exchange "
        "what they compute on GPUs replay one step; legal: fields of one shape");
  if (!options_.captures || !usual || warm_steps_ < kWarmGraphSteps) {
    const NoKernelSearch rare(!usual);
    warm_steps_ += usual;
    step();
    return false;
  }
  if (graph_ < 0) {
    options_.wait();
    graph_ = lane_.capture(step);
  }
  lane_.replay(graph_);
  return true;
}

void StepGraph::drop() {
  lane_.drop_graphs();
  options_.captures = false;
  graph_ = -1;
}

}  // namespace cohort
