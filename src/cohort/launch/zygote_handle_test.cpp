// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/zygote_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <map>

namespace cohort::process {
namespace {

// More requests and reports than the queues between the two hold.
TEST(ZygoteHandle, TakesAnyNumberOfRanksAtOnce) {
  constexpr int kRanks = 500;
  ZygoteOptions options;
  options.body = [] { return 0; };
  ZygoteHandle zygote(options);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int i = 0; i < kRanks; ++i) {
    ASSERT_TRUE(zygote.spawn(i, {}, null.get(), null.get(), null.get()));
  }
  std::map<Report::Kind, int> reports;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (reports[Report::kExited] < kRanks && Clock::now() < deadline) {
    pollfd event{zygote.socket(), POLLIN, 0};
    ::poll(&event, 1, 100);
    while (const auto report = zygote.next_report()) ++reports[report->kind];
  }
  EXPECT_EQ(reports[Report::kSpawned], kRanks);
  EXPECT_EQ(reports[Report::kExited], kRanks);
}

}  // namespace
}  // namespace cohort::process
