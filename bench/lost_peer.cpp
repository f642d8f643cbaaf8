// SPDX-License-Identifier: Apache-2.0
// How soon ranks know that one of them is gone, without a launcher to tell them:
//   lost_peer BACKEND RANKS kill|freeze TIMEOUT_S
// Ranks reduce without pause; one is killed or frozen; prints when each survivor's
// call failed, in milliseconds, and what it said.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/world.h"
#include "cohort/core/error.h"

namespace {

using Clock = std::chrono::steady_clock;

double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch())
      .count();
}

struct Report {
  int rank = -1;
  bool started = false;  // the first reduction is done
  double failed_at_ms = 0;
  char message[400] = {};
};

void send(int fd, const Report& report) {
  if (::write(fd, &report, sizeof(report)) != sizeof(report)) ::_exit(3);
}

[[noreturn]] void run_rank(const cohort::World& world,
                           const cohort::ConnectOptions& options, int fd) {
  Report report{.rank = world.rank};
  try {
    const auto store = cohort::join(world, options);
    const auto comm = cohort::connect(world, *store, options);
    at::Tensor tensor = at::ones({1'000'000});
    for (int64_t i = 0;; ++i) {
      comm->all_reduce(tensor, cohort::ReduceOp::kMax).wait();
      if (i == 0) {
        report.started = true;
        send(fd, report);
      }
    }
  } catch (const std::exception& error) {
    report.failed_at_ms = now_ms();
    std::strncpy(report.message, error.what(), sizeof(report.message) - 1);
    send(fd, report);
  }
  ::_exit(0);
}

Report receive(int fd) {
  Report report;
  if (::read(fd, &report, sizeof(report)) != sizeof(report)) std::exit(3);
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: lost_peer BACKEND RANKS kill|freeze TIMEOUT_S\n");
    return 2;
  }
  ::alarm(120);
  const int ranks = std::atoi(argv[2]);
  const bool freeze = std::string(argv[3]) == "freeze";
  const cohort::ConnectOptions options{
      .backend = argv[1],
      .timeout = std::chrono::milliseconds(int64_t(1000 * std::atof(argv[4])))};
  int pipe[2];
  if (::pipe(pipe) != 0) return 3;

  // The port must be known before the fork, the server's thread must come after it.
  int ports[2];
  if (::pipe(ports) != 0) return 3;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    cohort::World world{.rank = rank, .size = ranks, .local_rank = rank};
    world.local_size = ranks;
    world.token = "lost_peer";
    if (::read(ports[0], &world.master_port, sizeof(int)) != sizeof(int)) ::_exit(3);
    run_rank(world, options, pipe[1]);
  }
  const cohort::StoreServer server;
  for (int rank = 0; rank < ranks; ++rank) {
    const int port = server.port();
    if (::write(ports[1], &port, sizeof(port)) != sizeof(port)) return 3;
  }
  for (int rank = 0; rank < ranks; ++rank) receive(pipe[0]);  // all have started

  const int victim = ranks / 2;
  const double lost_at = now_ms();
  ::kill(pids[victim], freeze ? SIGSTOP : SIGKILL);
  double worst = 0;
  for (int i = 0; i + 1 < ranks; ++i) {
    const Report report = receive(pipe[0]);
    const double ms = report.failed_at_ms - lost_at;
    worst = std::max(worst, ms);
    std::printf("rank %d after %.0f ms: %s\n", report.rank, ms, report.message);
  }
  std::printf("%s, %d ranks, rank %d %s: the last survivor knew after %.0f ms\n",
              argv[1], ranks, victim, freeze ? "frozen" : "killed", worst);
  ::kill(pids[victim], SIGKILL);
  for (pid_t pid : pids) ::waitpid(pid, nullptr, 0);
}
