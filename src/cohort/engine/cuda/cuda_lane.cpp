// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_lane.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using c10::cuda::CUDAStreamGuard;
namespace allocator = c10::cuda::CUDACachingAllocator;

class Lane final : public CudaLane {
 public:
  Lane() : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, 0)) {}

  void run(const std::function<void()>& work) override {
    const CUDAStreamGuard guard(stream_);
    work();
  }

  void capture(const std::function<void()>& work) override {
    wait();
    const CUDAStreamGuard guard(stream_);
    graph_ = std::make_unique<at::cuda::CUDAGraph>();
    graph_->capture_begin();
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_->capture_end();
  }

  void replay() override {
    COHORT_CHECK(graph_, "replay before capture");
    const CUDAStreamGuard guard(stream_);
    graph_->replay();
  }

  void wait() override { stream_.synchronize(); }

  int64_t peak_bytes() const override {
    const auto stats = allocator::getDeviceStats(stream_.device_index());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return stats.allocated_bytes[all].peak;
  }

 private:
  // A stream must not stay in capture; what ends it fails, because the work did.
  void abandon() {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
    }
    graph_.reset();
  }

  c10::cuda::CUDAStream stream_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::string why_no_cuda() {
  try {
    c10::cuda::device_count_ensure_non_zero();
    return "";
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    return what.substr(0, what.find('\n'));
  }
}

std::unique_ptr<CudaLane> make_cuda_lane() {
  const std::string why = why_no_cuda();
  if (!why.empty()) throw ConfigError(text("[engine] no GPU to run on: ", why));
  return std::make_unique<Lane>();
}

}  // namespace cohort
