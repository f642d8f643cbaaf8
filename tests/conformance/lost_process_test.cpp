// SPDX-License-Identifier: Apache-2.0
// A rank that waits for its device hears of the end of a peer. The device is one that
// never comes to an end: no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "cohort/comm/device/device_family.h"
#include "cohort/comm/device/device_group.h"
#include "cohort/core/error.h"
#include "support/ranks.h"

namespace cohort::device_comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class NeverDone final : public Flight {
 public:
  bool query() override { return false; }
};

class StuckGroup final : public DeviceGroup {
 public:
  StuckGroup(Communicator& host, std::shared_ptr<DeviceFamily> family)
      : DeviceGroup({&host, [](Communicator*) {}}, "comm.stuck", {.timeout = 60s}) {
    belong_to(std::move(family));
  }

  std::unique_ptr<DeviceCall> call(const std::string&, Stream) override { return {}; }
  bool orders_lanes() const override { return true; }

 private:
  void on_broken() override {}
};

// What a wait for the device is ended with.
std::string end_of_wait(Communicator& comm,
                        const std::shared_ptr<DeviceFamily>& family) {
  StuckGroup group(comm, family);
  NeverDone flight;
  return test::comm_error([&] { group.wait("all_reduce", flight); });
}

const test::World kWorld{"shm", 3, test::Kind::kProcesses, 60s};

TEST(LostProcess, IsNamedAtOnceByWhoWaitsForTheDevice) {
  test::run_ranks(kWorld,
                  [](Communicator& comm, Store&) {
                    const auto family = std::make_shared<DeviceFamily>(comm);
                    if (comm.rank() == 1) raise(SIGKILL);
                    const auto start = std::chrono::steady_clock::now();
                    EXPECT_THAT(end_of_wait(comm, family), HasSubstr("rank 1"));
                    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
                  },
                  {1});
}

}  // namespace
}  // namespace cohort::device_comm
