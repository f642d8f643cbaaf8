// SPDX-License-Identifier: Apache-2.0
// What it costs to make the groups of a layout: group_cost BACKEND RANKS LAYOUT
// Ranks of this machine make, a few times, all that a step of a small GPT communicates
// through in that layout. Prints how long that takes: the fastest and the median.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/world.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/nn/first_value.h"
#include "cohort/nn/language_models.h"
#include "cohort/step/generator.h"

namespace {

constexpr int kTimes = 15;

// A block for each place of a pipeline at least.
cohort::Schedule schedule_of(const cohort::Layout& layout) {
  const cohort::ModelsFilledLater later;
  const cohort::Chain chain = cohort::make_gpt({.vocab = 64,
                                                .context = 8,
                                                .width = 64,
                                                .depth = std::max(4, layout.pp),
                                                .heads = 8},
                                               {.tensor = {.size = layout.tp}});
  return cohort::generate(cohort::specs_of(chain), layout,
                          {.slices = 2 * layout.dp * layout.pp});
}

// Until the last rank has all of its groups.
double making_ms(const cohort::Schedule& schedule, cohort::Communicator& comm) {
  comm.barrier().wait();
  const auto begin = std::chrono::steady_clock::now();
  const cohort::RankChannels channels(schedule, comm);
  comm.barrier().wait();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - begin;
  return took.count();
}

int run_rank(const cohort::World& world, const char* backend, const char* keys) {
  try {
    const cohort::Layout layout = cohort::parse_layout(keys, world.size);
    const cohort::Schedule schedule = schedule_of(layout);
    const cohort::ConnectOptions options{.backend = backend};
    const auto store = cohort::join(world, options);
    const auto comm = cohort::connect(world, *store, options);
    std::vector<double> took;
    for (int i = 0; i < kTimes; ++i) took.push_back(making_ms(schedule, *comm));
    std::ranges::sort(took);
    if (world.rank == 0)
      std::printf("%s, %s: groups of %d ranks in %.1f ms, median %.1f ms\n", backend,
                  layout.text().c_str(), world.size, took[0], took[kTimes / 2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "group_cost: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 4 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) {
    std::fprintf(stderr, "usage: group_cost BACKEND RANKS LAYOUT\n");
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
    return run_rank(world, argv[1], argv[3]);
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
