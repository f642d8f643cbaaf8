// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "cohort/core/file.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

// A line of /proc/self/status, such as "VmHWM:     1234 kB"; 0 where it is missing.
int64_t status_bytes(std::string_view field) {
  const std::string status = read_file("/proc/self/status", ErrorKind::kBug);
  const size_t at = status.find(text("\n", field, ":"));
  if (at == std::string::npos) return 0;
  const size_t begin = at + field.size() + 2;
  const size_t end = status.find(" kB", begin);
  if (end == std::string::npos) return 0;
  const auto line = std::string_view(status).substr(begin, end - begin);
  return try_parse_int(line).value_or(0) * 1024;
}

}  // namespace

void MemoryCounter::add(int64_t bytes) {
  const int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak &&
         !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

int64_t process_memory() { return status_bytes("VmRSS"); }

// getrusage's figure survives exec, so it may be a parent's: only a fallback.
int64_t process_peak_memory() {
  if (const int64_t peak = status_bytes("VmHWM"))
    return std::max(peak, process_memory());
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace cohort
