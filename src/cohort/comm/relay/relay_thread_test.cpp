// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/relay/relay_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>

#include "cohort/comm/local/local.h"

namespace cohort::relay_backend {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kPastAllNumbers = std::numeric_limits<int64_t>::max();

TEST(RelayThread, CallsAreMadeInTheOrderInWhichTheyWereAskedFor) {
  uint64_t done = 0;
  std::vector<int> made;
  RelayThread thread(std::move(make_local(1, 20s)[0]), &done,
                     [](const std::string& reason) { ADD_FAILURE() << reason; });
  const auto first =
      thread.ask([&](Communicator&) { return made.push_back(1), Work(); });
  const auto second =
      thread.ask([&](Communicator&) { return made.push_back(2), Work(); });
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(second.number, 2u);
  second.give();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(std::atomic_ref(done).load(), 0u);  // the first is not there yet
  first.give();
  while (std::atomic_ref(done).load() < 2) std::this_thread::yield();
  EXPECT_EQ(made, (std::vector{1, 2}));
}

// Lanes that a stop has let go on would wait again.
TEST(RelayThread, ACallThatEndsAfterAStopDoesNotTakeTheWordBack) {
  uint64_t done = 0;
  std::promise<void> begun, stopped;
  RelayThread thread(std::move(make_local(1, 20s)[0]), &done,
                     [](const std::string&) {});
  thread
      .ask([&](Communicator&) {
        begun.set_value();
        stopped.get_future().wait();
        return Work();
      })
      .give();
  begun.get_future().wait();
  thread.stop("enough");
  EXPECT_EQ(std::atomic_ref(done).load(), 0u);  // peers may still read its tensors
  stopped.set_value();
  thread.end();
  EXPECT_EQ(done, kPastAllNumbers);
}

TEST(RelayThread, TensorsMayBeGivenWhenItIsGone) {
  uint64_t done = 0;
  std::function<void()> give;
  {
    RelayThread thread(std::move(make_local(1, 20s)[0]), &done,
                       [](const std::string&) {});
    give = thread.ask([](Communicator&) { return Work(); }).give;
    thread.stop("enough");
  }
  give();
  EXPECT_EQ(done, kPastAllNumbers);
}

}  // namespace
}  // namespace cohort::relay_backend
