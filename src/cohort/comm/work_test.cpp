// SPDX-License-Identifier: Apache-2.0
#include "cohort/work.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

struct Calls {
  int waits = 0, joins = 0;
};

// One of the host: joining it is waiting for it.
class HostOperation : public Operation {
 public:
  explicit HostOperation(Calls& calls) : calls_(calls) {}
  void wait() override { ++calls_.waits; }
  bool poll() override { return false; }

 protected:
  Calls& calls_;
};

class LaneOperation final : public HostOperation {
 public:
  using HostOperation::HostOperation;
  bool join() override {
    ++calls_.joins;
    return false;
  }
};

TEST(Work, ToJoinOneOfTheHostIsToWaitForIt) {
  Calls calls;
  Work work(std::make_unique<HostOperation>(calls));
  work.join();
  EXPECT_EQ(calls.waits, 1);
  EXPECT_FALSE(work.in_flight());
  work.wait();
  work.join();
  EXPECT_EQ(calls.waits, 1);
}

TEST(Work, OneThatIsJoinedCanStillBeWaitedFor) {
  Calls calls;
  Work work(std::make_unique<LaneOperation>(calls));
  work.join();
  EXPECT_EQ(calls.waits, 0);
  EXPECT_TRUE(work.in_flight());
  work.wait();
  EXPECT_EQ(calls.waits, 1);
}

TEST(Work, OneThatIsJoinedIsDroppedWithoutAWait) {
  Calls calls;
  {
    Work work(std::make_unique<LaneOperation>(calls));
    work.join();
    Work moved(std::move(work));
    moved = Work(std::make_unique<LaneOperation>(calls));  // and this one is not joined
  }
  EXPECT_EQ(calls.joins, 1);
  EXPECT_EQ(calls.waits, 1);
}

TEST(Work, OneThatIsDoneIsJoinedAlready) {
  Work work;
  work.join();
  EXPECT_TRUE(work.poll());
}

}  // namespace
}  // namespace cohort
