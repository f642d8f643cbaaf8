// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>

#include "cohort/comm/endpoint.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kPatience{5'000};

// With a secret, and without.
class GuardedStoreTest : public testing::TestWithParam<bool> {
 protected:
  GuardedStoreTest()
      : door_{"127.0.0.1", Listener("127.0.0.1", 0).port(),
              GetParam() ? std::string(32, 's') : ""} {}

  StoreDoor door_;
};

INSTANTIATE_TEST_SUITE_P(WithAndWithoutSecret, GuardedStoreTest, testing::Bool());

TEST_P(GuardedStoreTest, AllSeeOneMap) {
  GuardedStoreServer server(door_);
  GuardedStore a(door_, kPatience), b(door_, kPatience), c(door_, kPatience);
  a.set("key", std::string("a\0b", 3));
  EXPECT_EQ(b.get("key", kPatience), std::string("a\0b", 3));
  EXPECT_EQ(server.get("key", kPatience), std::string("a\0b", 3));
  EXPECT_TRUE(c.has("key"));
  EXPECT_FALSE(c.has("other"));
  EXPECT_EQ(a.add("count", 2), 2);
  EXPECT_EQ(server.add("count", 3), 5);
  EXPECT_EQ(c.add("count", -1), 4);
  a.set("large", std::string(900'000, 'x'));
  EXPECT_EQ(b.get("large", kPatience).size(), 900'000u);
}

TEST_P(GuardedStoreTest, GetWaitsForTheKey) {
  GuardedStoreServer server(door_);
  GuardedStore a(door_, kPatience), b(door_, kPatience);
  std::thread later([&] { b.set("from guest", b.get("from server", kPatience)); });
  server.set("from server", "word");
  EXPECT_EQ(a.get("from guest", kPatience), "word");
  later.join();
}

TEST_P(GuardedStoreTest, GetGivesUpAndTheStoreStaysUsable) {
  GuardedStoreServer server(door_);
  GuardedStore a(door_, kPatience);
  EXPECT_THROW(a.get("never", milliseconds{20}), CommError);
  a.set("key", "value");
  EXPECT_EQ(a.get("key", kPatience), "value");
}

TEST_P(GuardedStoreTest, LastWordIsSetWhenTheConnectionEnds) {
  GuardedStoreServer server(door_);
  std::optional<GuardedStore> a(std::in_place, door_, kPatience);
  a->set_at_end("left", "a");
  EXPECT_FALSE(server.has("left"));
  a.reset();
  EXPECT_EQ(server.get("left", kPatience), "a");
}

TEST_P(GuardedStoreTest, LostServerIsReported) {
  auto server = std::make_unique<GuardedStoreServer>(door_);
  GuardedStore a(door_, kPatience);
  server.reset();
  EXPECT_THROW(a.has("key"), CommError);
  EXPECT_THROW(a.has("key"), CommError);
}

TEST_P(GuardedStoreTest, OnlyOneServes) {
  GuardedStoreServer server(door_);
  EXPECT_THROW(GuardedStoreServer{door_}, ConfigError);
}

TEST_P(GuardedStoreTest, NobodyIsThere) {
  EXPECT_THROW(GuardedStore(door_, kPatience), NobodyThere);
}

class GuardedStoreOnTheNetwork : public testing::Test {
 protected:
  // A connection that says `words`, and whether the server has hung up on it by itself.
  UniqueFd stranger(const std::string& words) {
    std::string reason;
    UniqueFd socket = connect_to(door_.address, door_.port, kPatience, reason);
    EXPECT_TRUE(socket) << reason;
    const ssize_t sent = ::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
    EXPECT_EQ(sent, static_cast<ssize_t>(words.size()));
    return socket;
  }
  static bool is_cut_off(const UniqueFd& socket) {
    char bytes[256];
    for (;;) {
      pollfd event{socket.get(), POLLIN, 0};
      if (::poll(&event, 1, 20'000) <= 0) return false;
      if (::recv(socket.get(), bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

  StoreDoor door_{"127.0.0.1", Listener("127.0.0.1", 0).port(), std::string(32, 's')};
  GuardedStoreServer server_{door_};
};

TEST_F(GuardedStoreOnTheNetwork, AnotherSecretIsRefusedAndNamedOnce) {
  StoreDoor wrong = door_;
  wrong.secret = std::string(32, 'w');
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(
        test::message_of<ConfigError>([&] { GuardedStore store(wrong, kPatience); }),
        HasSubstr("has another rendezvous token"));
  }
  EXPECT_THAT(server_.take_refused(), ElementsAre("127.0.0.1"));
  EXPECT_TRUE(server_.take_refused().empty());
}

TEST_F(GuardedStoreOnTheNetwork, GarbageIsCutOffAndOthersGoOn) {
  GuardedStore before(door_, kPatience);
  const UniqueFd web = stranger("GET / HTTP/1.1\r\n\r\n");
  const UniqueFd huge = stranger(std::string(1'000, '\xff'));
  const UniqueFd plain = stranger(std::string("\x05\0\0\0\x03", 5));
  EXPECT_TRUE(is_cut_off(web));
  EXPECT_TRUE(is_cut_off(huge));
  before.set("key", "value");
  EXPECT_EQ(GuardedStore(door_, kPatience).get("key", kPatience), "value");
  EXPECT_TRUE(server_.take_refused().empty());
}

TEST_F(GuardedStoreOnTheNetwork, SilentOnesAreFewAndHaveADeadline) {
  GuardedStore before(door_, kPatience);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(stranger(""));
  before.set("key", "value");
  EXPECT_EQ(GuardedStore(door_, kPatience).get("key", kPatience), "value");
  EXPECT_TRUE(is_cut_off(silent.front()));  // by those who came after
  EXPECT_TRUE(is_cut_off(silent.back()));   // by the clock
}

}  // namespace
}  // namespace cohort
