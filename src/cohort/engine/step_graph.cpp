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

void StepGraph::begin(bool whole) {
  is_usual_ = whole && batches_.is_usual();
  if (whole && !is_usual_ && options_.captures && !options_.alone)
    throw ConfigError(
        "[engine] two whole batches have different shapes, and ranks that exchange "
        "what they compute on GPUs replay one step; legal: fields of one shape");
  replays_ = options_.captures && is_usual_ && warm_steps_ >= kWarmGraphSteps;
  if (!replays_) warm_steps_ += is_usual_;
}

bool StepGraph::run(int stretch, bool whole, const std::function<void()>& work) {
  if (stretch == 0) begin(whole);
  if (!replays_) {
    const NoKernelSearch rare(!is_usual_);
    work();
    return false;
  }
  if (static_cast<int>(graphs_.size()) == stretch) {
    options_.wait();
    graphs_.push_back(lane_.capture(work));
  }
  lane_.replay(graphs_.at(stretch));
  return true;
}

void StepGraph::drop() {
  lane_.drop_graphs();
  options_.captures = false;
  graphs_.clear();
}

}  // namespace cohort
