// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/action_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using testing::ElementsAre;

// Writes down what each stream was given: marks as "!N", waits for them as "?N".
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

  bool can_capture() const override { return false; }
  int capture(const std::function<void()>&) override { return 0; }
  void replay(int) override {}
  void drop_graphs() override {}
  void wait() override {}
  void wait_for_device() override {}
  bool wait_at_most(std::chrono::milliseconds) override { return true; }
  int64_t download(const Tensor&, const Tensor&) override { return 0; }
  void wait_for(int64_t) override {}
  void join_downloads() override {}
  void upload(const Tensor&, const Tensor&, bool) override {}
  void join_uploads() override {}
  void wait_uploads() override {}
  Tensor random_bits(const Tensor&, uint64_t, int64_t) override { return {}; }
  void pin(const Tensor&) override {}
  int64_t peak_bytes() const override { return 0; }

  std::map<int, std::vector<std::string>> streams;

 private:
  int current_ = 0;
};

void run_all(ActionLanes& lanes, WrittenLane& device, const Role& role) {
  lanes.begin();
  for (int i = 0; i < static_cast<int>(role.actions.size()); ++i)
    lanes.run(i, [&] { device.add(text(i)); });
  lanes.end();
}

// What its own lane has done already nobody waits for.
TEST(ActionLanes, AnActionWaitsInItsStreamForThoseOfOtherLanes) {
  Role role;
  role.actions = {{.kind = ActionKind::kBackward},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {0}},
                  {.kind = ActionKind::kBackward},
                  {.kind = ActionKind::kReduce, .lane = 2, .waits = {1}},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {2}},
                  {.kind = ActionKind::kUpdate, .waits = {2, 3}}};
  WrittenLane device;
  ActionLanes lanes(device, role);
  run_all(lanes, device, role);
  EXPECT_THAT(device.streams[0],
              ElementsAre("!6", "0", "!0", "2", "!2", "?3", "5", "?7", "?8"));
  EXPECT_THAT(device.streams[1], ElementsAre("?6", "?0", "1", "!1", "?2", "4", "!7"));
  EXPECT_THAT(device.streams[2], ElementsAre("?6", "?1", "3", "!3", "!8"));
}

TEST(ActionLanes, AloneTheStreamOfComputingHasNoMarks) {
  Role role;
  role.actions = {{.kind = ActionKind::kForward},
                  {.kind = ActionKind::kUpdate, .waits = {0}}};
  WrittenLane device;
  ActionLanes lanes(device, role);
  run_all(lanes, device, role);
  EXPECT_THAT(device.streams[0], ElementsAre("0", "1"));
  EXPECT_EQ(device.streams.size(), 1);
}

}  // namespace
}  // namespace cohort
