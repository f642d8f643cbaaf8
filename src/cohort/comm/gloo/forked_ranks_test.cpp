// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/gloo/forked_ranks_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "cohort/comm/gloo/gloo.h"
#include "cohort/comm/tcp_store.h"

namespace cohort::test {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
constexpr auto kPatience = 20s;

struct Child {
  pid_t pid = 0;
  int output = -1;
  bool done = false;
  bool stopped = false;
};

World world_of(int rank, int size) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  return world;
}

std::string run_rank(const World& world, const ConnectOptions& options,
                     const std::function<std::string(Communicator&)>& body) {
  try {
    TcpStore store({.port = world.master_port});
    auto comm = make_gloo(world, store, options);
    return body(*comm);
  } catch (const std::exception& error) {
    return error.what();
  }
}

[[noreturn]] void be_rank(World world, int ports, int output,
                          const ConnectOptions& options,
                          const std::function<std::string(Communicator&)>& body,
                          const std::function<void(int)>& before_connect) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  if (read(ports, &world.master_port, sizeof(int)) != sizeof(int)) _exit(1);
  // Expectations that fail print to stdout: they are part of what the rank says.
  if (before_connect) before_connect(world.rank);
  std::cout << run_rank(world, options, body) << std::flush;
  std::fflush(stdout);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

Child start(const World& world, int ports, const ConnectOptions& options,
            const std::function<std::string(Communicator&)>& body,
            const std::function<void(int)>& before_connect) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::cout << std::flush;
  std::fflush(stdout);
  Child child;
  child.pid = fork();
  if (child.pid == 0) be_rank(world, ports, ends[1], options, body, before_connect);
  close(ends[1]);
  child.output = ends[0];
  return child;
}

// Takes note of children that ended or stopped; true when there is nothing to wait
// for.
bool reap(std::vector<Child>& children, std::vector<ForkedRank>& ranks) {
  bool all = true;
  for (size_t i = 0; i < children.size(); ++i) {
    Child& child = children[i];
    int status = 0;
    if (!child.done && waitpid(child.pid, &status, WNOHANG | WUNTRACED) == child.pid) {
      child.stopped = WIFSTOPPED(status);
      child.done = !child.stopped;
      ranks[i].status = status;
    }
    all = all && (child.done || child.stopped);
  }
  return all;
}

void collect(Child& child, ForkedRank& rank) {
  if (!child.done) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, &rank.status, 0);
  }
  char buffer[4096];
  for (ssize_t n; (n = read(child.output, buffer, sizeof(buffer))) > 0;) {
    rank.said.append(buffer, static_cast<size_t>(n));
  }
  close(child.output);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ForkedRank& rank) {
  return out << "rank " << rank.rank << ", status " << rank.status << ": " << rank.said;
}

std::vector<ForkedRank> run_forked(
    int size, const ConnectOptions& options,
    const std::function<std::string(Communicator&)>& body,
    const std::function<void(int)>& before_connect) {
  // The store has threads, and a process with threads must not fork: so ranks come
  // first, and wait for its port.
  int ports[2];
  EXPECT_EQ(pipe2(ports, O_CLOEXEC), 0);
  std::vector<Child> children;
  std::vector<ForkedRank> ranks(size);
  for (int rank = 0; rank < size; ++rank) {
    ranks[rank].rank = rank;
    children.push_back(
        start(world_of(rank, size), ports[0], options, body, before_connect));
  }
  const StoreServer server;
  const int port = server.port();
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(write(ports[1], &port, sizeof(port)), ssize_t{sizeof(port)});
  for (int end : ports) close(end);
  const auto deadline = SteadyClock::now() + kPatience;
  while (!reap(children, ranks) && SteadyClock::now() < deadline) poll(nullptr, 0, 5);
  for (int rank = 0; rank < size; ++rank) collect(children[rank], ranks[rank]);
  return ranks;
}

}  // namespace cohort::test
