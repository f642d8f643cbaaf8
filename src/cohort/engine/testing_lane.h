// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort::test {

// A lane for tests that writes down what each stream was given: marks as "!N", waits
// for them as "?N".
class WrittenLane final : public CudaLane {
 public:
  at::Device device() const override { return at::kCPU; }
  void run(const std::function<void()>& work) override { run_beside(0, work); }
  void run_beside(int stream, const std::function<void()>& work) override {
    const int before = std::exchange(current_, stream);
    work();
    current_ = before;
  }
  void set_mark(int mark) override { add(text("!", mark)); }
  void wait_for_mark(int mark) override { add(text("?", mark)); }
  int make_marks(int) override { return 0; }
  void reach_mark(int) override {}
  void takes(const Tensor&) override {}
  void add(const std::string& what) { streams[current_].push_back(what); }

  bool can_capture() const override { return true; }
  int capture(const std::function<void()>& work) override {
    const int graph = captured_++;
    add(text("capture ", graph));
    work();
    return graph;
  }
  void replay(int graph) override { add(text("replay ", graph)); }
  void drop_graphs() override { add("drop"); }
  void wait() override {}
  void wait_for_device() override {}
  bool wait_at_most(std::chrono::milliseconds) override { return true; }
  Tensor random_bits(const Tensor&, uint64_t, int64_t, int64_t) override { return {}; }
  int64_t peak_bytes() const override { return 0; }

  std::map<int, std::vector<std::string>> streams;

 private:
  int current_ = 0, captured_ = 0;
};

}  // namespace cohort::test
