// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

#include "cohort/core/error.h"
#include "cohort/launch/process_tree.h"

namespace cohort::process {
namespace {

int topology(int core, const char* what) {
  std::ifstream file(text("/sys/devices/system/cpu/cpu", core, "/topology/", what));
  int value = -1;
  file >> value;
  return value;
}

// A set of cores as the kernel takes it.
class CoreSet {
 public:
  explicit CoreSet(const std::vector<int>& cores) {
    const int count = *std::max_element(cores.begin(), cores.end()) + 1;
    set_ = CPU_ALLOC(count);
    bytes_ = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes_, set_);
    for (int core : cores) CPU_SET_S(core, bytes_, set_);
  }
  ~CoreSet() { CPU_FREE(set_); }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;

  void pin(pid_t thread) const { ::sched_setaffinity(thread, bytes_, set_); }

 private:
  cpu_set_t* set_;
  size_t bytes_;
};

}  // namespace

void pin_process(pid_t pid, const std::vector<int>& cores) {
  if (cores.empty()) return;
  const CoreSet set(cores);
  for (int thread : threads_of(pid)) set.pin(thread);
}

std::vector<int> allowed_cores() {
  // A mask larger than the kernel's is filled in full; a smaller one is refused.
  std::vector<std::tuple<int, int, int>> found;
  for (int count = 1024; count <= 65536; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    const size_t bytes = CPU_ALLOC_SIZE(count);
    const bool fits = ::sched_getaffinity(0, bytes, set) == 0;
    for (int core = 0; fits && core < count; ++core) {
      if (!CPU_ISSET_S(core, bytes, set)) continue;
      found.emplace_back(topology(core, "physical_package_id"),
                         topology(core, "core_id"), core);
    }
    CPU_FREE(set);
    if (fits) break;
  }
  std::sort(found.begin(), found.end());
  std::vector<int> cores;
  for (const auto& entry : found) cores.push_back(std::get<2>(entry));
  return cores;
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int parts) {
  const size_t n = cores.size();
  if (parts < 1 || n < static_cast<size_t>(parts)) return {};
  std::vector<std::vector<int>> shares;
  for (int i = 0; i < parts; ++i) {
    shares.emplace_back(cores.begin() + n * i / parts,
                        cores.begin() + n * (i + 1) / parts);
  }
  return shares;
}

}  // namespace cohort::process
