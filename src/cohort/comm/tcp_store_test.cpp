// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/tcp_store.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cohort/comm/endpoint.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using test::message_of;
using testing::HasSubstr;

// A plain TCP connection to a port of this machine.
int knock(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

TEST(TcpStore, SharesValuesAndCountersUnderItsPrefix) {
  StoreServer server;
  TcpStore a({.port = server.port(), .prefix = "run1/"});
  TcpStore b({.port = server.port(), .prefix = "run1/"});
  TcpStore stranger({.port = server.port(), .prefix = "run2/"});
  a.set("key", std::string("va\0ue", 5));
  EXPECT_EQ(b.get("key", 1s), std::string("va\0ue", 5));
  EXPECT_TRUE(b.has("key"));
  EXPECT_FALSE(stranger.has("key"));
  EXPECT_EQ(a.add("count", 2), 2);
  EXPECT_EQ(b.add("count", 3), 5);
  EXPECT_EQ(stranger.add("count", 1), 1);
}

// Whoever connects may list, read and write: c10d's store has no lock.
TEST(TcpStore, ListingARunsKeysTellsNothingAndForgingAValueIsNamed) {
  StoreServer server;
  TcpStore store({.port = server.port(), .prefix = "cohort/token/0/"});
  store.set("card", "of rank 0");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(server.port());
  options.waitWorkers = false;
  c10d::TCPStore stranger("127.0.0.1", options);
  std::string name;
  for (const std::string& key : stranger.listKeys()) {
    const std::string plain = key.substr(key.find("cohort"));
    const std::vector<uint8_t> value = stranger.get(plain);
    const std::string seen = plain + std::string(value.begin(), value.end());
    for (const char* secret : {"token", "card", "rank"}) {
      EXPECT_THAT(seen, testing::Not(HasSubstr(secret)));
    }
    name = plain;
  }
  const std::vector<uint8_t> whole = stranger.get(name);
  for (std::vector<uint8_t> forged : {std::vector<uint8_t>(64, 'x'), {}, whole}) {
    if (forged.size() > 20) forged.back() ^= 1;
    stranger.set(name, forged);
    EXPECT_THAT(message_of<CommError>([&] { store.get("card", 5s); }),
                HasSubstr("'card': its value was not written by a rank of this run"));
  }
  stranger.set(name, whole);
  EXPECT_EQ(store.get("card", 5s), "of rank 0");
}

TEST(TcpStore, AValueIsGoodForItsOwnKeyAlone) {
  const StoreSeal seal("cohort/token/0/"), other("cohort/token/1/");
  const std::string sealed = seal.close("a", "value");
  EXPECT_EQ(seal.open("a", sealed), "value");
  EXPECT_EQ(seal.open("empty", seal.close("empty", "")), "");
  EXPECT_THROW(seal.open("b", sealed), CommError);
  EXPECT_THROW(other.open("a", sealed), CommError);
}

TEST(TcpStore, GetWaitsUntilTheKeyIsThere) {
  StoreServer server;
  TcpStore a({.port = server.port()});
  std::thread setter([&] { TcpStore({.port = server.port()}).set("late", "here"); });
  EXPECT_EQ(a.get("late", 20s), "here");
  setter.join();
}

TEST(TcpStore, AGetThatIsNeverAnsweredNamesTheKeyAndTheStoreGoesOn) {
  StoreServer server;
  TcpStore store({.port = server.port(), .prefix = "secret/"});
  const std::string error = message_of<CommError>([&] { store.get("nothing", 50ms); });
  EXPECT_THAT(error, HasSubstr("get 'nothing': nobody set it within 50 ms"));
  EXPECT_THAT(error, testing::Not(HasSubstr("secret")));
  store.set("nothing", "something");
  EXPECT_EQ(store.get("nothing", 5s), "something");
}

TEST(TcpStore, AnUnreachableStoreNamesHostPortAndTime) {
  int port = 0;
  {
    Listener free("127.0.0.1", 0);
    port = free.port();
  }
  const std::string error = message_of<CommError>(
      [&] { TcpStore({.host = "localhost", .port = port, .timeout = 60ms}); });
  EXPECT_THAT(error, HasSubstr("localhost:" + std::to_string(port)));
  EXPECT_THAT(error, HasSubstr("refused"));
  EXPECT_THAT(error, HasSubstr("tried for 60 ms"));
}

TEST(TcpStore, AnUnknownHostIsAConfigError) {
  EXPECT_THAT(message_of<ConfigError>([] { TcpStore({.host = "no such host"}); }),
              HasSubstr("host 'no such host'"));
}

TEST(StoreServer, APortInUseIsNamed) {
  StoreServer first;
  const std::string error =
      message_of<ConfigError>([&] { StoreServer second("127.0.0.1", first.port()); });
  EXPECT_THAT(error, HasSubstr("port " + std::to_string(first.port())));
  EXPECT_THAT(error, HasSubstr("in use"));
}

TEST(StoreServer, TakesAGivenPortAndAllInterfaces) {
  int port = 0;
  {
    Listener free("127.0.0.1", 0);
    port = free.port();
  }
  StoreServer server("0.0.0.0", port);
  EXPECT_EQ(server.port(), port);
  TcpStore({.port = port}).set("a", "b");
}

TEST(StoreServer, StrangersDisturbNobody) {
  StoreServer server;
  TcpStore store({.port = server.port()});
  const int silent = knock(server.port());
  const int garbage = knock(server.port());
  const std::string noise =
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(5000, '\xff');
  EXPECT_GT(send(garbage, noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  const int half = knock(server.port());
  EXPECT_EQ(send(half, "\x3c\x85", 2, MSG_NOSIGNAL), 2);
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    store.set(key, "v");
    EXPECT_EQ(store.get(key, 5s), "v");
  }
  EXPECT_EQ(TcpStore({.port = server.port()}).get("3", 5s), "v");
  for (int fd : {silent, garbage, half}) close(fd);
}

// The store lives in a child that is stopped: every call must still end.
TEST(TcpStore, AFrozenStoreIsReportedByTheDeadline) {
  int ports[2];
  ASSERT_EQ(pipe(ports), 0);
  const pid_t host = fork();
  if (host == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    StoreServer server;
    const int port = server.port();
    if (write(ports[1], &port, sizeof(port)) < 0) _exit(1);
    pause();
    _exit(0);
  }
  int port = 0;
  ASSERT_EQ(read(ports[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  {
    TcpStore store({.port = port, .timeout = 300ms});
    store.set("a", "b");
    kill(host, SIGSTOP);
    ASSERT_EQ(waitpid(host, nullptr, WUNTRACED), host);  // its threads stop one by one
    EXPECT_THAT(message_of<CommError>([&] { store.get("a", 100ms); }),
                HasSubstr("no answer in 100 ms"));
    EXPECT_THAT(message_of<CommError>([&] { store.has("a"); }), HasSubstr("lost"));
    EXPECT_THAT(
        message_of<CommError>([&] { TcpStore({.port = port, .timeout = 200ms}); }),
        HasSubstr("connect to 127.0.0.1:"));
  }
  kill(host, SIGKILL);
  EXPECT_EQ(waitpid(host, nullptr, 0), host);
  close(ports[0]);
  close(ports[1]);
}

}  // namespace
}  // namespace cohort
