// SPDX-License-Identifier: Apache-2.0
// What it costs to make the groups of a layout: group_cost BACKEND RANKS GROUPS
// Ranks of this machine split their world in halves, so many times; prints how long
// that takes.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/world.h"

namespace {

double split_ms(cohort::Communicator& comm, int groups) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<cohort::Communicator>> made;
  for (int i = 0; i < groups; ++i) made.push_back(comm.split(comm.rank() % 2));
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - begin;
  comm.barrier().wait();
  return took.count();
}

int run_rank(const cohort::World& world, const char* backend, int groups) {
  try {
    const cohort::ConnectOptions options{.backend = backend};
    const auto store = cohort::join(world, options);
    const auto comm = cohort::connect(world, *store, options);
    comm->barrier().wait();
    const double ms = split_ms(*comm, groups);
    if (world.rank == 0)
      std::printf("%s, %d ranks: %d splits in %.1f ms, %.2f ms each\n", backend,
                  world.size, groups, ms, ms / groups);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 4 ? std::atoi(argv[2]) : 0;
  const int groups = argc == 4 ? std::atoi(argv[3]) : 0;
  if (ranks < 1 || groups < 1) {
    std::fprintf(stderr, "usage: group_cost BACKEND RANKS GROUPS\n");
    return 2;
  }
  ::alarm(120);
  // The port must be known to ranks, the server's thread must come after the forks.
  int ports[2];
  if (::pipe(ports) != 0) return 3;
  for (int rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    cohort::World world{.rank = rank, .size = ranks, .local_rank = rank};
    world.local_size = ranks;
    world.token = "group_cost";
    if (::read(ports[0], &world.master_port, sizeof(int)) != sizeof(int)) return 3;
    return run_rank(world, argv[1], groups);
  }
  const cohort::StoreServer server;
  for (int rank = 0; rank < ranks; ++rank) {
    const int port = server.port();
    if (::write(ports[1], &port, sizeof(port)) != sizeof(port)) return 3;
  }
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;)
    if (status != 0) worst = 1;
  return worst;
}
