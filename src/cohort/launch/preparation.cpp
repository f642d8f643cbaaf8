// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/preparation.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "cohort/core/error.h"
#include "cohort/launch/cores.h"

namespace cohort::process {
namespace {

std::vector<UniqueFd> open_logs(const std::string& folder, const NodeWorld& world) {
  std::vector<UniqueFd> logs;
  if (folder.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (int i = 0; i < world.local_size; ++i) {
    for (const char* stream : {"stdout", "stderr"}) {
      const std::string path =
          text(folder, "/rank_", world.first_rank + i, ".", stream, ".log");
      logs.emplace_back(::open(
          path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
      if (logs.back()) continue;
      throw ConfigError(text("[launch] cannot write log file '", path,
                             "': ", strerror(errno), "; give a writable folder"));
    }
  }
  return logs;
}

// Two pipes and an error file a rank, and its logs.
void check_open_files(const LaunchOptions& options) {
  constexpr int64_t kOwn = 64;
  const int64_t needed = kOwn + options.ranks * (options.log_dir.empty() ? 3L : 5L);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      needed <= static_cast<int64_t>(limit.rlim_cur)) {
    return;
  }
  throw ConfigError(text("[launch] ", options.ranks, " ranks on this node need ",
                         needed, " open files; legal: up to ", limit.rlim_cur,
                         " (`ulimit -n`)"));
}

}  // namespace

void check_options(const LaunchOptions& o) {
  const auto refuse = [](auto&&... what) {
    throw ConfigError(text("[launch] ", what...));
  };
  if (o.program.empty() == !o.body) refuse("give a program or a body; legal: just one");
  if (o.ranks < 1) refuse("ranks on this node: ", o.ranks, "; legal: 1 or more");
  check_open_files(o);
  if (o.min_nodes < 1 || o.max_nodes < o.min_nodes) {
    refuse("nodes: ", o.min_nodes, ":", o.max_nodes, "; legal: 1 <= MIN <= MAX");
  }
  if (o.max_nodes > 1 && o.rdzv.empty()) {
    refuse(o.max_nodes, " nodes have no place to meet; give --rdzv HOST:PORT");
  }
  if (o.max_restarts < 0) refuse("restarts: ", o.max_restarts, "; legal: 0 or more");
  if (o.grace.count() < 0) refuse("negative grace; legal: 0 or more seconds");
}

void hold_standard_streams() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int held = ::open("/dev/null", O_RDWR);
  }
}

void prepare(RankPlan& plan) {
  const LaunchOptions& options = plan.options;
  plan.logs = open_logs(options.log_dir, plan.world);
  const std::vector<int> cores = allowed_cores();
  const int num_cores = static_cast<int>(cores.size());
  plan.threads = threads_of_rank(options.threads, num_cores, options.ranks);
  // More threads than a share of the cores: pinned, they would only wait.
  const bool fits = plan.threads <= std::max(1, num_cores / options.ranks);
  if (options.pin && options.ranks > 1 && plan.threads > 0 && fits) {
    plan.cores = share_cores(cores, options.ranks);
  }
}

}  // namespace cohort::process
