// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/local_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;

TEST(LocalStore, WhoWaitsForAKeyHearsOfItAtOnce) {
  LocalStore store;
  std::thread writer;
  for (int i = 0; i < 20; ++i) {  // sometimes the key is there first
    const std::string key = text("key ", i);
    writer = std::thread([&] { store.set(key, "value"); });
    EXPECT_EQ(store.get(key, 1h), "value");
    writer.join();
  }
}

TEST(LocalStore, CountsWhatIsAdded) {
  LocalStore store;
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_EQ(store.add("n", 3), 5);
  EXPECT_FALSE(store.has("m"));
  EXPECT_THROW(store.get("m", 1ms), CommError);
}

}  // namespace
}  // namespace cohort
