// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort {
namespace {

class HostLane final : public CudaLane {
 public:
  at::Device device() const override { return at::kCPU; }
  void run(const std::function<void()>& work) override { work(); }
  void run_beside(int, const std::function<void()>& work) override { work(); }
  void set_mark(int) override {}
  void wait_for_mark(int) override {}
  int make_marks(int) override { return 0; }
  void reach_mark(int) override {}
  void takes(const Tensor&) override {}
  bool can_capture() const override { return false; }
  int capture(const std::function<void()>&) override {
    throw BugError("[engine] nothing is captured on the host");
  }
  void replay(int) override { throw BugError("[engine] nothing was captured"); }
  void drop_graphs() override {}
  void wait() override {}
  void wait_for_device() override {}
  bool wait_at_most(std::chrono::milliseconds) override { return true; }
  Tensor random_bits(const Tensor& streams, uint64_t seed, int64_t first,
                     int64_t count) override {
    return cohort::random_bits(streams, seed, first, count);
  }
  int64_t peak_bytes() const override { return 0; }
};

}  // namespace

std::unique_ptr<CudaLane> make_host_lane() { return std::make_unique<HostLane>(); }

}  // namespace cohort
