// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/core/file.h"
#include "cohort/core/parse.h"

namespace cohort {
namespace {

// A line of a file in /proc, such as "VmHWM:     1234 kB"; 0 where it is missing.
int64_t proc_bytes(const char* path, std::string_view field) {
  const std::string status = text("\n", read_file(path, ErrorKind::kBug));
  const size_t at = status.find(text("\n", field, ":"));
  if (at == std::string::npos) return 0;
  const size_t begin = at + field.size() + 2;
  const size_t end = status.find(" kB", begin);
  if (end == std::string::npos) return 0;
  const auto line = std::string_view(status).substr(begin, end - begin);
  return try_parse_int(line).value_or(0) * 1024;
}

// The number that a small file holds; none where it is not there, or says "max".
std::optional<int64_t> number_in(const char* path) {
  std::string line;
  if (!std::getline(std::ifstream(path), line)) return std::nullopt;
  return try_parse_int(line);
}

int64_t status_bytes(std::string_view field) {
  return proc_bytes("/proc/self/status", field);
}

class AllocationReporter final : public c10::MemoryReportingInfoBase {
 public:
  explicit AllocationReporter(MemoryCounter& counter) : counter_(counter) {}
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    if (bytes >= 0)
      counter_.add(bytes);
    else
      counter_.subtract(-bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  MemoryCounter& counter_;
};

}  // namespace

struct TensorMemoryScope::Guard {
  explicit Guard(MemoryCounter& counter)
      : inner(c10::DebugInfoKind::PROFILER_STATE,
              std::make_shared<AllocationReporter>(counter)) {}
  c10::DebugInfoGuard inner;
};

TensorMemoryScope::TensorMemoryScope(MemoryCounter& counter)
    : guard_(std::make_unique<Guard>(counter)) {}
TensorMemoryScope::~TensorMemoryScope() = default;

void report_memory(void* data, int64_t bytes) {
  if (c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, c10::Device(c10::kCPU));
}

int64_t available_memory() { return proc_bytes("/proc/meminfo", "MemAvailable"); }

int64_t memory_left() {
  int64_t left = available_memory();
  const int64_t used = process_memory();
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const auto most = number_in(path)) left = std::min(left, *most - used);
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    left =
        std::min(left, static_cast<int64_t>(space.rlim_cur) - status_bytes("VmSize"));
  return std::max<int64_t>(left, 0);
}

void require_memory(int64_t bytes, ErrorKind kind, const std::string& what) {
  if (bytes < kSmallMemory) return;
  const int64_t left = memory_left();
  if (bytes > left)
    throw_error(kind, text(what, ": needs ", bytes, " bytes of memory; ", left,
                           " are left here"));
}

void MemoryCounter::add(int64_t bytes) {
  const int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak &&
         !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

int64_t process_memory() { return status_bytes("VmRSS"); }

int64_t process_shared_memory() { return status_bytes("RssShmem"); }

// getrusage's figure survives exec, so it may be a parent's: only a fallback.
int64_t process_peak_memory() {
  if (const int64_t peak = status_bytes("VmHWM"))
    return std::max(peak, process_memory());
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace cohort
