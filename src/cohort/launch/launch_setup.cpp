// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/launch_setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "cohort/core/error.h"
#include "cohort/elastic/progress_page.h"
#include "cohort/launch/cores.h"

namespace cohort::process {
namespace {

// Adds the logs that are not open yet.
void open_logs(RankPlan& plan, int ranks) {
  const std::string& folder = plan.options.log_dir;
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (int i = static_cast<int>(plan.logs.size()) / 2; i < ranks; ++i) {
    for (const char* stream : {"stdout", "stderr"}) {
      const std::string path =
          text(folder, "/rank_", plan.world.first_rank + i, ".", stream, ".log");
      plan.logs.emplace_back(::open(
          path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
      if (plan.logs.back()) continue;
      throw ConfigError(text("[launch] cannot write log file '", path,
                             "': ", strerror(errno), "; give a writable folder"));
    }
  }
}

// Per rank two pipes, an error file and its logs; where ranks are replaced, also its
// link, what it has us hold, and as much for one that is on its way out.
void check_open_files(const LaunchOptions& options, int ranks) {
  const int64_t own = options.elastic.on ? 192 : 64;  // stores have several
  int64_t each = options.log_dir.empty() ? 3 : 5;
  if (options.elastic.on) each += 5;
  const int64_t spares = options.elastic.on ? options.elastic.spares : 0;
  const int64_t needed = own + (ranks + spares) * each;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      needed <= static_cast<int64_t>(limit.rlim_cur)) {
    return;
  }
  throw ConfigError(text("[launch] ", ranks, " ranks on this node need ", needed,
                         " open files; legal: up to ", limit.rlim_cur,
                         " (`ulimit -n`)"));
}

// Those of other libraries too: after a fork nobody has them.
int threads_here() {
  std::error_code ignored;
  const std::filesystem::directory_iterator tasks("/proc/self/task", ignored);
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// More threads than a share of the cores: pinned, they would only wait.
std::vector<std::vector<int>> cores_of_ranks(const RankPlan& plan, int ranks) {
  const std::vector<int> cores = allowed_cores();
  const bool fits = plan.threads <= std::max<int>(1, cores.size() / ranks);
  if (!plan.options.pin || ranks < 2 || plan.threads <= 0 || !fits) return {};
  return share_cores(cores, ranks);
}

void check_elastic(const LaunchOptions& o) {
  const auto refuse = [](auto&&... what) {
    throw ConfigError(text("[launch] elastic: ", what...));
  };
  if (!o.elastic.on) return;
  if (!o.rdzv.empty()) refuse("several nodes; legal: ranks of one node");
  const int most = most_ranks(o.elastic);
  if (o.ranks > most) refuse(o.ranks, " ranks; legal: up to ", most);
  if (o.elastic.min_ranks < 1 || o.elastic.min_ranks > o.ranks) {
    refuse("at least ", o.elastic.min_ranks, " ranks; legal: 1 to ", o.ranks);
  }
  const Team& team = o.elastic.team;
  if (team.stages < 1 || team.parts < 1 || o.ranks % team.ranks() != 0 ||
      o.elastic.min_ranks < team.ranks()) {
    refuse("teams of ", team.stages, " x ", team.parts, " ranks; legal: a number that ",
           "divides ", o.ranks, ", and is at most the fewest, ", o.elastic.min_ranks);
  }
  if (o.elastic.spares < 0 || o.elastic.spares > most) {
    refuse(o.elastic.spares, " spares; legal: 0 to ", most);
  }
  if (o.elastic.detect.count() <= 0) refuse("no time to detect; legal: more than 0 s");
}

}  // namespace

void check_options(const LaunchOptions& o) {
  const auto refuse = [](auto&&... what) {
    throw ConfigError(text("[launch] ", what...));
  };
  if (o.program.empty() == !o.body) refuse("give a program or a body; legal: just one");
  if (const int threads = threads_here(); o.body && threads > 1)
    refuse("this process has ", threads,
           " threads, and ranks are to be forked from it; ",
           "legal: no tensor computed, no thread started before");
  if (o.ranks < 1) refuse("ranks on this node: ", o.ranks, "; legal: 1 or more");
  check_open_files(o, o.ranks);
  if (o.min_nodes < 1 || o.max_nodes < o.min_nodes) {
    refuse("nodes: ", o.min_nodes, ":", o.max_nodes, "; legal: 1 <= MIN <= MAX");
  }
  if (o.max_nodes > 1 && o.rdzv.empty()) {
    refuse(o.max_nodes, " nodes have no place to meet; give --rdzv HOST:PORT");
  }
  if (o.max_restarts < 0) refuse("restarts: ", o.max_restarts, "; legal: 0 or more");
  if (o.grace.count() < 0) refuse("negative grace; legal: 0 or more seconds");
  check_elastic(o);
}

void hold_standard_streams() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int held = ::open("/dev/null", O_RDWR);
  }
}

int most_ranks(const ElasticOptions& elastic) {
  return elastic.max_ranks > 0 ? std::min(elastic.max_ranks, ProgressPage::kMostRanks)
                               : ProgressPage::kMostRanks;
}

void prepare(RankPlan& plan) {
  const LaunchOptions& options = plan.options;
  open_logs(plan, options.ranks);
  const int num_cores = static_cast<int>(allowed_cores().size());
  plan.threads = threads_of_rank(options.threads, num_cores, options.ranks);
  plan.cores = cores_of_ranks(plan, options.ranks);
}

void prepare_resize(RankPlan& plan, int ranks) {
  check_open_files(plan.options, ranks);
  open_logs(plan, ranks);
  plan.cores = cores_of_ranks(plan, ranks);
}

}  // namespace cohort::process
