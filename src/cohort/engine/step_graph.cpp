// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_graph.h"

#include "cohort/engine/cuda/kernel_search.h"

namespace cohort {
namespace {

constexpr int kWarmGraphSteps = 3;

}  // namespace

StepGraph::StepGraph(CudaLane& lane, const DeviceBatches& batches, bool captures)
    : lane_(lane), batches_(batches), captures_(captures) {}

void StepGraph::run(const std::function<void()>& step) {
  const bool usual = batches_.is_usual();
  if (!captures_ || !usual || warm_steps_ < kWarmGraphSteps) {
    const NoKernelSearch rare(!usual);
    warm_steps_ += usual;
    return step();
  }
  if (graph_ < 0) graph_ = lane_.capture(step);
  lane_.replay(graph_);
}

}  // namespace cohort
