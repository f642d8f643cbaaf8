// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shm/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/core/error.h"
#include "support/ranks.h"
#include "support/shared_store.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Shows itself to its peers, and then never learns of them.
class DeafStore : public Store {
 public:
  explicit DeafStore(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    store_.get("all is over", 60s);
    throw CommError("[test] no " + key);
  }
  bool has(const std::string& key) override { return store_.has(key); }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_.add(key, amount);
  }

 private:
  Store& store_;
};

TEST(Shm, ARankThatNeverBeganHasNoLastProgress) {
  test::SharedStore store;
  const auto connect = [&](int rank, Store& through) {
    World world;
    world.rank = world.local_rank = rank;
    world.size = world.local_size = 2;
    ConnectOptions options;
    options.timeout = 300ms;
    options.join_timeout = 60s;
    (void)make_shm(world, through, options);
  };
  std::jthread deaf([&] {
    DeafStore through(store);
    EXPECT_THAT(test::comm_error([&] { connect(1, through); }), HasSubstr("[test]"));
  });
  EXPECT_THAT(
      test::comm_error([&] { connect(0, store); }),
      AllOf(HasSubstr("rank 1 is missing: it has called no collective and made no "
                      "progress yet"),
            Not(HasSubstr(" s ago"))));
  store.set("all is over", "");
}

TEST(Shm, AnInvitationThatIsNoneIsRefused) {
  for (const char* garbage : {"", "x", "1 2 3 4 5 6 7 8 9", "words\nand more words"}) {
    test::SharedStore store;
    store.set("shm/0/0", garbage);
    World world;
    world.rank = world.local_rank = 1;
    world.size = world.local_size = 2;
    const auto connect = [&] { (void)make_shm(world, store, ConnectOptions{}); };
    EXPECT_THAT(test::comm_error(connect),
                HasSubstr("[comm.shm] rank 0 published no invitation: at byte"));
  }
}

}  // namespace
}  // namespace cohort
